"""Foundation backbones by short names: the network of timm, the preprocessing and the feature that its authors use.

A short name such as `dinov2-small` differs from timm's name of the same network in three ways: images are prepared as in the
authors' evaluation, the feature is the one that they compare images by, and training keeps the network frozen by default.
This module imports neither torch nor timm.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Scale = tuple[tuple[float, float, float], tuple[float, float, float]]
Interpolation = Literal["bilinear", "bicubic"]

IMAGENET_SCALE: Scale = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP_SCALE: Scale = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF_SCALE: Scale = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
"""Mean and standard deviation of the input, of red, green and blue in [0, 1]."""


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes the square that a network sees in evaluation.

    Args:
        interpolation: of the resizing, which is always antialiased.
        ratio: the short side is resized to this multiple of the side of the square, which is then cut from the centre. None: the
            whole image is resized to the square, whatever its shape. Default: that of ImageNet's evaluation.
    """

    interpolation: Interpolation = "bilinear"
    ratio: float | None = 256 / 224


USUAL_PREPROCESS = Preprocess()
"""Preprocessing of all backbones that are not in `FOUNDATION_BACKBONES`."""


@dataclass(frozen=True)
class Foundation:
    """One foundation backbone.

    Args:
        timm: name in timm, with its tag.
        width: width of the feature.
        feature: what the feature is: the class token after the last norm ("token"), the class token times the projection that
            the authors trained with texts ("projected token"), the output of attention pooling ("attention"), or the average
            of the last map after its norm ("average").
        parameters: number of parameters, in millions.
        size: side of the images by default.
        native: side of the images at the end of its pretraining; for another one, position embeddings are interpolated.
        patch: sizes must be a multiple of it; 1 for a convolutional network.
        scale: mean and standard deviation of the input.
        preprocess: resizing and cropping in the evaluation of the authors.
        licence: of the weights, in the words of timm.
    """

    timm: str
    width: int
    feature: Literal["token", "projected token", "attention", "average"]
    parameters: int
    size: int
    native: int
    patch: int
    scale: Scale
    preprocess: Preprocess
    licence: str

    @property
    def options(self) -> dict[str, object]:
        """Arguments of `timm.create_model` with which the output of the network is the feature."""
        is_averaged = "dinov3" in self.timm and self.feature == "token"  # by timm
        pooled: dict[str, object] = {"global_pool": "token"} if is_averaged else {}
        return pooled if self.feature == "projected token" else {"num_classes": 0, **pooled}


def dinov2(size: str, width: int, parameters: int, registers: str = "") -> Foundation:
    return Foundation(
        f"vit_{size}_patch14_{registers}dinov2.lvd142m", width, "token", parameters, 224, 518, 14, IMAGENET_SCALE,
        Preprocess("bicubic"), "apache-2.0",
    )  # fmt: skip


def dinov3(name: str, width: int, parameters: int) -> Foundation:
    vit = name.startswith("vit")
    return Foundation(
        name, width, "token" if vit else "average", parameters, 224, 256 if vit else 224, 16 if vit else 1, IMAGENET_SCALE,
        Preprocess("bicubic"), "dinov3-license",
    )  # fmt: skip


def siglip(name: str, width: int, parameters: int, size: int, patch: int) -> Foundation:
    squash = Preprocess("bicubic", None)
    return Foundation(name, width, "attention", parameters, size, size, patch, HALF_SCALE, squash, "apache-2.0")


def clip(
    name: str,
    width: int,
    parameters: int,
    patch: int,
    size: int = 224,
    scale: Scale = CLIP_SCALE,
    licence: str = "apache-2.0",
) -> Foundation:
    centre = Preprocess("bicubic", 1.0)
    return Foundation(name, width, "projected token", parameters, size, size, patch, scale, centre, licence)


FOUNDATION_BACKBONES: dict[str, Foundation] = {
    "dinov2-small": dinov2("small", 384, 22),
    "dinov2-base": dinov2("base", 768, 87),
    "dinov2-large": dinov2("large", 1024, 304),
    "dinov2-giant": dinov2("giant", 1536, 1136),
    "dinov2-small-reg": dinov2("small", 384, 22, "reg4_"),
    "dinov2-base-reg": dinov2("base", 768, 87, "reg4_"),
    "dinov2-large-reg": dinov2("large", 1024, 304, "reg4_"),
    "dinov2-giant-reg": dinov2("giant", 1536, 1136, "reg4_"),
    "dinov3-small": dinov3("vit_small_patch16_dinov3.lvd1689m", 384, 22),
    "dinov3-small-plus": dinov3("vit_small_plus_patch16_dinov3.lvd1689m", 384, 29),
    "dinov3-base": dinov3("vit_base_patch16_dinov3.lvd1689m", 768, 86),
    "dinov3-large": dinov3("vit_large_patch16_dinov3.lvd1689m", 1024, 303),
    "dinov3-huge-plus": dinov3("vit_huge_plus_patch16_dinov3.lvd1689m", 1280, 841),
    "dinov3-convnext-tiny": dinov3("convnext_tiny.dinov3_lvd1689m", 768, 28),
    "dinov3-convnext-small": dinov3("convnext_small.dinov3_lvd1689m", 768, 49),
    "dinov3-convnext-base": dinov3("convnext_base.dinov3_lvd1689m", 1024, 88),
    "dinov3-convnext-large": dinov3("convnext_large.dinov3_lvd1689m", 1536, 196),
    "siglip-base": siglip("vit_base_patch16_siglip_224.webli", 768, 93, 224, 16),
    "siglip-large": siglip("vit_large_patch16_siglip_256.webli", 1024, 316, 256, 16),
    "siglip-so400m": siglip("vit_so400m_patch14_siglip_224.webli", 1152, 428, 224, 14),
    "siglip-so400m-378": siglip("vit_so400m_patch14_siglip_378.webli", 1152, 428, 378, 14),
    "siglip2-base": siglip("vit_base_patch16_siglip_224.v2_webli", 768, 93, 224, 16),
    "siglip2-large": siglip("vit_large_patch16_siglip_256.v2_webli", 1024, 316, 256, 16),
    "siglip2-so400m": siglip("vit_so400m_patch14_siglip_224.v2_webli", 1152, 428, 224, 14),
    "siglip2-so400m-378": siglip("vit_so400m_patch14_siglip_378.v2_webli", 1152, 428, 378, 14),
    "clip-base-32": clip("vit_base_patch32_clip_quickgelu_224.openai", 512, 88, 32),
    "clip-base-16": clip("vit_base_patch16_clip_quickgelu_224.openai", 512, 86, 16),
    "clip-large-14": clip("vit_large_patch14_clip_quickgelu_224.openai", 768, 304, 14),
    "clip-large-14-336": clip("vit_large_patch14_clip_quickgelu_336.openai", 768, 304, 14, 336),
    "clip-base-32-laion": clip("vit_base_patch32_clip_224.laion2b", 512, 88, 32),
    "clip-base-16-laion": clip("vit_base_patch16_clip_224.laion2b", 512, 86, 16),
    "clip-large-14-laion": clip("vit_large_patch14_clip_224.laion2b", 768, 304, 14, scale=HALF_SCALE),
    "clip-huge-14-laion": clip("vit_huge_patch14_clip_224.laion2b", 1024, 632, 14),
    "eva02-clip-base": clip("eva02_base_patch16_clip_224.merged2b", 512, 86, 16, licence="mit"),
    "eva02-clip-large": clip("eva02_large_patch14_clip_224.merged2b", 768, 304, 14, licence="mit"),
}
"""Short name -> its backbone. Numbers of parameters are rounded, and include the projection of CLIP."""


def foundation_entries() -> Iterator[tuple[str, str]]:
    """Yield the short name and a one-line description of every foundation backbone."""
    for name, one in FOUNDATION_BACKBONES.items():
        feature = {"token": "class token", "projected token": "class token, projected"}.get(one.feature, one.feature)
        yield (
            name,
            f"{one.timm}: {one.parameters} M parameters, {one.width} features ({feature}), {one.size} px, {one.licence}",
        )


def similar_names(name: str) -> list[str]:
    """Return the short names that a misspelt or incomplete one may mean: all of its family for `dinov2` or `CLIP`."""
    plain = name.lower().replace("_", "-")
    family = [known for known in FOUNDATION_BACKBONES if plain and known.startswith(plain)]
    return family or difflib.get_close_matches(plain, FOUNDATION_BACKBONES, n=3, cutoff=0.75)
