"""Backbones by name: every timm model, GoogLeNet, BN-Inception, and a small network for small images."""

from __future__ import annotations

import difflib
import math
import operator
import warnings
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from likewise.errors import LikewiseError
from likewise.models.bn_inception import BNInception, flatten_caffe
from likewise.models.conv_small import ConvSmall
from likewise.pretrained.weights import (
    LITE0_SCALE,
    download,
    has_lite0_package,
    load_lite0_package,
    load_whole,
    read_weights,
)

OTHER_BACKBONES = ("bn_inception", "conv_small", "googlenet")
"""Backbones that are not from timm."""


class Backbone(nn.Module):
    """An image network without its classifier: normalised images -> features at every position of its last map.

    Args:
        net: returns a map (B, C, H, W) or (B, H, W, C), or tokens (B, P, C), from `forward_features` or from its call.
        channels: C, the width of the feature.
        size: side of the images it was built for, in pixels.
        mean: subtracted from an image in [0, 1], in the channel order of the network.
        std: divisor after the subtraction.
        bgr: whether the network expects the channel order blue, green, red.
        channels_last: whether maps are (B, H, W, C).
        prefix: number of leading tokens without a position, such as the class token.
        norm: path in `net` of the norm of the pooled feature, for networks that normalise after pooling.
    """

    def __init__(
        self,
        net: nn.Module,
        channels: int,
        size: int,
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
        *,
        bgr: bool = False,
        channels_last: bool = False,
        prefix: int = 0,
        norm: str | None = None,
    ):
        super().__init__()
        self.net: Any = net  # networks of timm have methods that nn.Module does not declare
        self.channels = channels
        self.size = size
        self.mean = mean
        self.std = std
        self.bgr = bgr
        self.channels_last = channels_last
        self.prefix = prefix
        self.norm = norm

    def forward(self, x: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B C P"]:
        out = self.net.forward_features(x) if hasattr(self.net, "forward_features") else self.net(x)
        if out.ndim == 3:
            return out[:, self.prefix :].transpose(1, 2)
        return out.flatten(1, 2).transpose(1, 2) if self.channels_last else out.flatten(2)

    def finish(self, f: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """Return the pooled feature after the network's norm, if it has one."""
        if self.norm is None:
            return f
        norm = operator.attrgetter(self.norm)(self.net)
        return norm(f) if self.norm == "fc_norm" else norm(f[:, :, None, None]).flatten(1)


def build_backbone(
    name: str, *, pretrained: bool = True, weights: str | Path | None = None, size: int | None = None
) -> Backbone:
    """Return the backbone of this name, with weights from a file, published weights, or random weights.

    Args:
        name: a timm model, with or without a tag (`resnet50`, `resnet50.a1_in1k`), or one of `OWN`.
            `efficientnet_lite0` always means timm's `tf_efficientnet_lite0`, the network of the installable weights.
        pretrained: use the published weights; ignored if `weights` is given.
        weights: a local file; all of its tensors must fit the network.
        size: side of the images in pixels; only networks built for a fixed size need it.
    """
    builders = {"googlenet": build_googlenet, "bn_inception": build_bn_inception, "conv_small": build_conv_small}
    pretrained = pretrained and weights is None
    if name in builders:
        backbone = builders[name](pretrained, weights)
        backbone.size = size or backbone.size
        return backbone
    return build_timm(name, pretrained, weights, size)


@cache
def width_of(name: str) -> int:
    """Return the width of the pooled feature of a backbone."""
    return build_backbone(name, pretrained=False).channels


def build_conv_small(pretrained: bool, weights: str | Path | None) -> Backbone:
    if pretrained:
        raise LikewiseError("Embedder: conv_small has no pretrained weights; pass pretrained=False")
    net = ConvSmall()
    if weights is not None:
        load_whole(net, read_weights(weights), Path(weights).name)
    return Backbone(net, net.channels, net.size, net.mean, net.std)


def build_bn_inception(pretrained: bool, weights: str | Path | None) -> Backbone:
    net = BNInception()
    if weights is not None:
        load_whole(net, flatten_caffe(read_weights(weights)), Path(weights).name)
    if pretrained:
        state = download("bn_inception", lambda: torch.hub.load_state_dict_from_url(
            net.url, map_location="cpu", progress=False, check_hash=True, weights_only=True))  # fmt: skip
        load_whole(net, flatten_caffe(state), net.url)
    return Backbone(net, net.channels, net.size, net.mean, net.std, bgr=net.bgr)


def build_googlenet(pretrained: bool, weights: str | Path | None) -> Backbone:
    from torchvision.models import GoogLeNet, GoogLeNet_Weights

    whole = GoogLeNet(aux_logits=False, init_weights=False)
    layers = OrderedDict((n, layer) for n, layer in whole.named_children() if n not in ("avgpool", "dropout", "fc"))
    net = nn.Sequential(layers)
    if weights is not None:
        load_whole(net, read_weights(weights), Path(weights).name)
    if pretrained:
        published = GoogLeNet_Weights.IMAGENET1K_V1
        state = download("googlenet", lambda: published.get_state_dict(progress=False, check_hash=True))
        load_whole(net, state, published.url)
    # torchvision normalises by ImageNet's mean and deviation and, with these weights, converts the result to
    # (x - 0.5) / 0.5 inside the network (transform_input); here this is one step.
    return Backbone(net, 1024, 224, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def build_timm(name: str, pretrained: bool, weights: str | Path | None, size: int | None) -> Backbone:
    import timm  # slow to import

    check_name(name)
    lite0 = name == "efficientnet_lite0" or name.split(".")[0] == "tf_efficientnet_lite0"
    timm_name = "tf_efficientnet_lite0" if name == "efficientnet_lite0" else name
    packaged = lite0 and pretrained and has_lite0_package()
    # Only num_classes=0: with global_pool="" timm builds some networks with norms that do not match their weights.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # from the classifier with 0 classes
        if pretrained and not packaged:
            net: Any = download(name, lambda: timm.create_model(timm_name, pretrained=True, num_classes=0))
        else:
            net = timm.create_model(timm_name, pretrained=False, num_classes=0)
    if packaged:
        load_lite0_package(net)
    if weights is not None:
        load_whole(net, read_weights(weights), Path(weights).name)
    facts = net.pretrained_cfg
    size = fit_size(net, name, facts, size)
    norm = pooled_norm(net)
    features, used = probe_features(net, name, size)
    drop_unused(net, used, norm)
    scale: Any = LITE0_SCALE if lite0 else (tuple(facts["mean"]), tuple(facts["std"]))
    return Backbone(net, net.num_features, size, *scale, norm=norm, **layout(net, name, features))


def check_name(name: str) -> None:
    import timm

    known = timm.list_models()
    base, _, tag = name.partition(".")
    tagged = timm.list_pretrained(f"{base}.*") if tag and base in known else []
    if name in known or name in tagged:
        return
    near = difflib.get_close_matches(name, tagged or [*known, *OTHER_BACKBONES, "features"], n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `timm.list_models()` lists them"
    raise LikewiseError(
        f"Embedder: backbone must be a timm model or one of {', '.join(OTHER_BACKBONES)}, got {name!r}{hint}"
    )


def fit_size(net: Any, name: str, facts: dict, size: int | None) -> int:
    """Return the side of the images, and adapt a network built for a fixed size, with its weights, to this side."""
    own = facts["input_size"][-1]
    if size is None or size == own or not facts.get("fixed_input_size", False):
        return size or own
    if not hasattr(net, "set_input_size"):
        raise LikewiseError(f"Embedder: {name} must have images of {own} pixels, got size={size}; omit size")
    net.set_input_size(img_size=(size, size))
    return size


def pooled_norm(net: nn.Module) -> str | None:
    if not isinstance(getattr(net, "fc_norm", nn.Identity()), nn.Identity):
        return "fc_norm"
    if type(getattr(net, "head", None)).__name__ == "NormMlpClassifierHead":
        return "head.norm"
    return None


def probe_features(net: Any, name: str, size: int) -> tuple[Tensor, set[str]]:
    """Return the features of one blank image, and the names of the modules that computed them."""
    used: set[str] = set()
    handles = [
        module.register_forward_pre_hook(lambda *_, path=path: used.add(path)) for path, module in net.named_modules()
    ]
    training = net.training
    with torch.no_grad():
        features = net.eval().forward_features(torch.zeros(1, 3, size, size))
    net.train(training)
    for handle in handles:
        handle.remove()
    if not isinstance(features, Tensor) or features.ndim not in (3, 4):
        raise LikewiseError(
            f"Embedder: backbone must return one map or one row of tokens, {name} does not; use another backbone"
        )
    return features, used


def drop_unused(net: nn.Module, used: set[str], norm: str | None) -> None:
    """Remove the modules with parameters that did not compute the features; `used` names those that did, and `norm` is kept.

    Their parameters would get no gradient, which fails in training on several devices, and would be saved in every file.
    """
    kept = {path.split(".")[0] for path in used} | {norm}
    for child, module in dict(net.named_children()).items():
        # Modules without parameters stay: some only act in training, such as patch dropout.
        if child not in kept and any(True for _ in module.parameters()):
            rest = nn.Sequential(OrderedDict(norm=module.get_submodule("norm"))) if norm == f"{child}.norm" else None
            setattr(net, child, nn.Identity() if rest is None else rest)


def layout(net: nn.Module, name: str, features: Tensor) -> dict[str, Any]:
    """Return the arguments of `Backbone` that describe the axes of the network's features."""
    if features.ndim == 3:
        # For networks without num_prefix_tokens: the tokens beyond the largest square grid.
        spare = features.shape[1] - math.isqrt(features.shape[1]) ** 2
        return {"prefix": getattr(net, "num_prefix_tokens", spare)}
    fits = [axis == 3 for axis in (1, 3) if features.shape[axis] == net.num_features]
    if not fits:
        raise LikewiseError(
            f"Embedder: {name} must return {net.num_features} features, got shape {tuple(features.shape)}; "
            "use another backbone"
        )
    return {"channels_last": fits[0] if len(fits) == 1 else str(getattr(net, "output_fmt", "")) == "NHWC"}
