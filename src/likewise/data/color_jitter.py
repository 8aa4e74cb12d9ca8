"""Colour jitter of a batch of images: brightness, contrast and saturation, in integers, so equal on every device."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from likewise.core.errors import LikewiseError

FACTOR_UNIT = 2**12
"""Fixed-point unit of the factors: this value means 1."""

GREY_WEIGHTS = (2989, 5870, 1140)
"""Luminance weights of red, green and blue, in units of 1/10000, as in torchvision."""


def check_jitter(strength: tuple[float, float, float]) -> None:
    """Raise unless these are valid strengths of brightness, contrast and saturation."""
    if len(strength) != 3 or not all(math.isfinite(s) and s >= 0 for s in strength):
        raise LikewiseError(
            f"augment: jitter must be the strengths of brightness, contrast and saturation, each 0 or more, got {strength}; "
            "0.4 0.4 0.4 is common"
        )


def factors(chance: Float[np.ndarray, "B 3"], strength: tuple[float, float, float]) -> Int[np.ndarray, "B 3"]:
    """Return factors between max(0, 1 - strength) and 1 + strength, in units of 1 / FACTOR_UNIT."""
    most = 1 + np.asarray(strength, np.float64)
    least = np.maximum(0, 2 - most)
    return np.rint((least + (most - least) * chance) * FACTOR_UNIT).astype(np.int64)


def jitter(x: UInt8[Tensor, "B 3 h w"], factor: Int[Tensor, "B 3"]) -> UInt8[Tensor, "B 3 h w"]:
    """Change brightness, then contrast (relative to the image's mean grey), then saturation (relative to each pixel's grey),
    each rounded down, as torchvision's adjust_brightness, adjust_contrast and adjust_saturation do on integers.

    Args:
        factor: three factors per image, in units of 1 / FACTOR_UNIT.
    """
    bright, contrast, colour = factor.int()[:, :, None, None, None].unbind(1)
    x = (x.int() * bright // FACTOR_UNIT).clamp(0, 255)
    # The mean times the number of pixels is an integer, and too large for 32 bits.
    pixels = x.shape[2] * x.shape[3]
    mean = (FACTOR_UNIT - contrast).long() * grey(x).sum((1, 2, 3), keepdim=True)
    x = (x.long() * contrast * pixels + mean).div(FACTOR_UNIT * pixels, rounding_mode="floor").clamp(0, 255).int()
    x = ((x * colour + grey(x) * (FACTOR_UNIT - colour)) // FACTOR_UNIT).clamp(0, 255)
    return x.to(torch.uint8)


def grey(x: Int[Tensor, "B 3 h w"]) -> Int[Tensor, "B 1 h w"]:
    red, green, blue = x.unbind(1)
    return ((GREY_WEIGHTS[0] * red + GREY_WEIGHTS[1] * green + GREY_WEIGHTS[2] * blue) // 10000)[:, None]
