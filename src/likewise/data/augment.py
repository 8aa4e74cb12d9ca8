"""From an RGB picture to a uint8 tensor (C, H, W) of a fixed size, with or without chance. Models normalise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from likewise.errors import LikewiseError, nearest_name

Kind = Literal["crop", "affine", "none"]
KINDS = ("crop", "affine", "none")

DEGREES, SHIFT, ZOOM = 8.0, 0.08, (0.9, 1.1)


def train_transform(
    size: int, kind: Kind = "crop", flip: bool = True, scale: tuple[float, float] = (0.08, 1.0)
) -> Callable[[Image.Image], Tensor]:
    """Chance for training.

    Args:
        size: side of the square that comes out, in pixels.
        kind: "crop" cuts a random part of the picture and resizes it (photographs); "affine" moves, turns and scales
            the whole picture a little (characters and logos, where a flip or a hard cut makes another class); "none"
            resizes only.
        flip: mirror every second picture. Belongs to "crop"; the other kinds never flip.
        scale: least and largest share of the area that "crop" keeps. Default from Szegedy et al. 2015, as all peers.
    """
    check(size, kind)
    if kind == "none":
        return eval_transform(size, "none")
    if kind == "affine":
        return Affine(size)
    if not (len(scale) == 2 and 0 < scale[0] <= scale[1] <= 1):
        raise LikewiseError(f"augment: scale must be two shares with 0 < least <= largest <= 1, got {scale}")
    crop = v2.RandomResizedCrop(size, scale=scale, antialias=True)
    return v2.Compose([crop, v2.RandomHorizontalFlip(0.5 if flip else 0.0), v2.PILToTensor()])


class Affine:
    """Shift, turn and scale a picture a little, its border repeated outwards so that no made-up colour enters.

    By hand, since small pictures come by the thousand and torchvision's chain of five transforms takes five times as long.
    """

    def __init__(self, size: int):
        self.size, self.margin = size, math.ceil(0.3 * size)
        self.source = np.arange(-self.margin, size + self.margin).clip(0, size - 1)

    def __call__(self, image: Image.Image) -> Tensor:
        size, margin = self.size, self.margin
        if image.size != (size, size):
            image = image.resize((size, size), Image.Resampling.BILINEAR)
        turn, zoom, right, down = torch.rand(4).tolist()
        angle = math.radians(DEGREES * (2 * turn - 1))
        scale = ZOOM[0] + (ZOOM[1] - ZOOM[0]) * zoom
        a, b = math.cos(angle) / scale, math.sin(angle) / scale
        centre = size / 2
        shift_x, shift_y = centre + SHIFT * size * (2 * right - 1), centre + SHIFT * size * (2 * down - 1)
        # Pillow asks where each pixel of the result comes from: back to the centre, turned, and into the padded picture.
        matrix = (
            a, b, centre + margin - a * shift_x - b * shift_y,
            -b, a, centre + margin + b * shift_x - a * shift_y,
        )  # fmt: skip
        padded = Image.fromarray(np.asarray(image)[self.source[:, None], self.source])
        moved = padded.transform((size, size), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(moved)).permute(2, 0, 1).contiguous()


def eval_transform(size: int, kind: Kind = "crop", resize: int | None = None) -> Callable[[Image.Image], Tensor]:
    """The same picture every time.

    Args:
        size: side of the square that comes out, in pixels.
        kind: "crop" resizes the short side to `resize` and cuts the middle; "affine" and "none" resize all of it.
        resize: short side before the cut, for "crop"; by default size * 256 / 224. Equal to `size`: it is not cut.
    """
    check(size, kind)
    if kind != "crop":
        if resize is not None:
            raise LikewiseError(f"augment: resize={resize} belongs to kind 'crop', and kind is {kind!r}; leave it out")
        return v2.Compose([v2.Resize((size, size), antialias=True), v2.PILToTensor()])
    short = round(size * 256 / 224) if resize is None else resize
    if short < size:
        raise LikewiseError(f"augment: resize must be at least size, got resize={resize} below size={size}")
    return v2.Compose([v2.Resize(short, antialias=True), v2.CenterCrop(size), v2.PILToTensor()])


def check(size: int, kind: str) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise LikewiseError(f"augment: size must be a whole number of pixels above 0, got {size!r}")
    if kind not in KINDS:
        raise LikewiseError(
            f"augment: there is no kind {kind!r}{nearest_name(str(kind), KINDS)} It is one of: {', '.join(KINDS)}"
        )
