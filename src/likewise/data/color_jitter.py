"""Brightness, contrast and saturation of a batch of pictures changed a little, in whole numbers: the same on every device."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from likewise.errors import LikewiseError

UNIT = 2**12
"""Of factors, which are whole numbers: so many parts are 1."""

GREY = (2989, 5870, 1140)
"""How bright red, green and blue are to the eye, in parts of 10000, as torchvision has it."""


def check_jitter(strength: tuple[float, float, float]) -> None:
    """Whether these are strengths of brightness, contrast and saturation."""
    if len(strength) != 3 or not all(math.isfinite(s) and s >= 0 for s in strength):
        raise LikewiseError(
            f"augment: jitter must be how much brightness, contrast and saturation may change, each 0 or more, got {strength}; "
            "0.4 0.4 0.4 is common"
        )


def factors(chance: Float[np.ndarray, "B 3"], strength: tuple[float, float, float]) -> Int[np.ndarray, "B 3"]:
    """Factors between max(0, 1 - strength) and 1 + strength, in parts of UNIT."""
    most = 1 + np.asarray(strength, np.float64)
    least = np.maximum(0, 2 - most)
    return np.rint((least + (most - least) * chance) * UNIT).astype(np.int64)


def jitter(x: UInt8[Tensor, "B 3 h w"], factor: Int[Tensor, "B 3"]) -> UInt8[Tensor, "B 3 h w"]:
    """Brightness, then contrast (away from the picture's mean grey), then saturation (away from each pixel's grey), each rounded
    down, as torchvision's adjust_brightness, adjust_contrast and adjust_saturation do on whole numbers.

    Args:
        factor: of each picture, three parts of UNIT.
    """
    bright, contrast, colour = factor.int()[:, :, None, None, None].unbind(1)
    x = (x.int() * bright // UNIT).clamp(0, 255)
    # Times the number of pixels the mean is whole, and so large that it takes 64 bits.
    pixels = x.shape[2] * x.shape[3]
    mean = (UNIT - contrast).long() * grey(x).sum((1, 2, 3), keepdim=True)
    x = (x.long() * contrast * pixels + mean).div(UNIT * pixels, rounding_mode="floor").clamp(0, 255).int()
    x = ((x * colour + grey(x) * (UNIT - colour)) // UNIT).clamp(0, 255)
    return x.to(torch.uint8)


def grey(x: Int[Tensor, "B 3 h w"]) -> Int[Tensor, "B 1 h w"]:
    red, green, blue = x.unbind(1)
    return ((GREY[0] * red + GREY[1] * green + GREY[2] * blue) // 10000)[:, None]
