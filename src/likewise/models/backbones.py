"""Backbones by name: any of timm, GoogLeNet, BN-Inception, and a small one for small pictures."""

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

OWN = ("bn_inception", "conv_small", "googlenet")


class Backbone(nn.Module):
    """An image network without its classifier: normalised pictures -> features of every place of its last map.

    Args:
        net: gives a map (B, C, H, W) or (B, H, W, C), or tokens (B, P, C), from `forward_features` or its call.
        channels: C, the width of the feature.
        size: side of the pictures it was made for, in pixels.
        mean: what to take off a picture in [0, 1], in the order of the network's channels.
        std: what to divide by then.
        bgr: the network wants blue first.
        channels_last: maps are (B, H, W, C).
        prefix: tokens in front that stand for no place, such as the class token.
        norm: where in `net` the norm of the pooled feature is, for networks that pool first and normalise then.
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
        found = self.net.forward_features(x) if hasattr(self.net, "forward_features") else self.net(x)
        if found.ndim == 3:
            return found[:, self.prefix :].transpose(1, 2)
        return found.flatten(1, 2).transpose(1, 2) if self.channels_last else found.flatten(2)

    def finish(self, f: Float[Tensor, "B C"]) -> Float[Tensor, "B C"]:
        """The norm the network itself puts on the pooled feature, if it has one."""
        if self.norm is None:
            return f
        norm = operator.attrgetter(self.norm)(self.net)
        return norm(f) if self.norm == "fc_norm" else norm(f[:, :, None, None]).flatten(1)


def build_backbone(
    name: str, *, pretrained: bool = True, weights: str | Path | None = None, size: int | None = None
) -> Backbone:
    """The backbone of this name, with the weights of a file, the published ones, or random ones.

    Args:
        name: a model of timm, with or without a tag (`resnet50`, `resnet50.a1_in1k`), or one of `OWN`.
            `efficientnet_lite0` is always timm's `tf_efficientnet_lite0`, the network the installable weights are of.
        pretrained: take the published weights; goes unused where `weights` is given.
        weights: a local file, loaded whole or not at all.
        size: side of the pictures in pixels; matters to networks built for one size.
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
    """Of the pooled feature of the backbone of this name."""
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
    parts = OrderedDict((n, part) for n, part in whole.named_children() if n not in ("avgpool", "dropout", "fc"))
    net = nn.Sequential(parts)
    if weights is not None:
        load_whole(net, read_weights(weights), Path(weights).name)
    if pretrained:
        published = GoogLeNet_Weights.IMAGENET1K_V1
        state = download("googlenet", lambda: published.get_state_dict(progress=False, check_hash=True))
        load_whole(net, state, published.url)
    # torchvision takes ImageNet's mean and deviation out and, with these weights, turns the result back into
    # (x - 0.5) / 0.5 inside of the network (transform_input); here that is done in one step.
    return Backbone(net, 1024, 224, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def build_timm(name: str, pretrained: bool, weights: str | Path | None, size: int | None) -> Backbone:
    import timm  # slow to import

    check_name(name)
    lite0 = name == "efficientnet_lite0" or name.split(".")[0] == "tf_efficientnet_lite0"
    timm_name = "tf_efficientnet_lite0" if name == "efficientnet_lite0" else name
    packaged = lite0 and pretrained and has_lite0_package()
    # num_classes=0 only: with global_pool="" timm would build some networks with other norms than their weights have.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # a classifier for no classes
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
    found, used = try_one_picture(net, name, size)
    drop_unused(net, used, norm)
    scale: Any = LITE0_SCALE if lite0 else (tuple(facts["mean"]), tuple(facts["std"]))
    return Backbone(net, net.num_features, size, *scale, norm=norm, **layout(net, name, found))


def check_name(name: str) -> None:
    import timm

    known = timm.list_models()
    base, _, tag = name.partition(".")
    tagged = timm.list_pretrained(f"{base}.*") if tag and base in known else []
    if name in known or name in tagged:
        return
    near = difflib.get_close_matches(name, tagged or [*known, *OWN, "features"], n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `timm.list_models()` names them"
    raise LikewiseError(f"Embedder: backbone must be a model of timm or one of {', '.join(OWN)}, got {name!r}{hint}")


def fit_size(net: Any, name: str, facts: dict, size: int | None) -> int:
    """The side of the pictures; networks built for one size are rebuilt for it, their weights with them."""
    own = facts["input_size"][-1]
    if size is None or size == own or not facts.get("fixed_input_size", False):
        return size or own
    if not hasattr(net, "set_input_size"):
        raise LikewiseError(
            f"Embedder: {name} is made for pictures of {own} pixels only, got size={size}; leave size out"
        )
    net.set_input_size(img_size=(size, size))
    return size


def pooled_norm(net: nn.Module) -> str | None:
    if not isinstance(getattr(net, "fc_norm", nn.Identity()), nn.Identity):
        return "fc_norm"
    if type(getattr(net, "head", None)).__name__ == "NormMlpClassifierHead":
        return "head.norm"
    return None


def try_one_picture(net: Any, name: str, size: int) -> tuple[Tensor, set[str]]:
    """What the network gives for one picture, and the names of the modules it went through."""
    used: set[str] = set()
    handles = [
        module.register_forward_pre_hook(lambda *_, path=path: used.add(path)) for path, module in net.named_modules()
    ]
    training = net.training
    with torch.no_grad():
        found = net.eval().forward_features(torch.zeros(1, 3, size, size))
    net.train(training)
    for handle in handles:
        handle.remove()
    if not isinstance(found, Tensor) or found.ndim not in (3, 4):
        raise LikewiseError(f"Embedder: backbone must give one map or one row of tokens, {name} does not; take another")
    return found, used


def drop_unused(net: nn.Module, used: set[str], norm: str | None) -> None:
    """Take out the parameters no feature passes through.

    They would never see a gradient, which fails in training on several devices, and would lie in every saved file.
    """
    kept = {path.split(".")[0] for path in used} | {norm}
    for child, module in dict(net.named_children()).items():
        # Parts without parameters stay: some only act in training, such as the dropping of patches.
        if child not in kept and any(True for _ in module.parameters()):
            left = nn.Sequential(OrderedDict(norm=module.get_submodule("norm"))) if norm == f"{child}.norm" else None
            setattr(net, child, nn.Identity() if left is None else left)


def layout(net: nn.Module, name: str, found: Tensor) -> dict[str, Any]:
    """Where channels and places stand in what the network gives."""
    if found.ndim == 3:
        # Networks that do not tell how many tokens stand for no place: what a square grid leaves over.
        spare = found.shape[1] - math.isqrt(found.shape[1]) ** 2
        return {"prefix": getattr(net, "num_prefix_tokens", spare)}
    fits = [axis == 3 for axis in (1, 3) if found.shape[axis] == net.num_features]
    if not fits:
        raise LikewiseError(f"Embedder: {name} promises {net.num_features} features, but gives {tuple(found.shape)}")
    return {"channels_last": fits[0] if len(fits) == 1 else str(getattr(net, "output_fmt", "")) == "NHWC"}
