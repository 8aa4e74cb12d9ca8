"""From an RGB picture to a uint8 tensor (C, H, W) of a fixed size, with or without chance. Models normalise."""

from __future__ import annotations

import difflib
import math
from typing import Literal

from torchvision.transforms import v2

from likewise.types import LikewiseError

Kind = Literal["crop", "affine", "none"]
KINDS = ("crop", "affine", "none")

DEGREES, SHIFT, ZOOM = 8.0, 0.08, (0.9, 1.1)


def train_transform(
    size: int, kind: Kind = "crop", flip: bool = True, scale: tuple[float, float] = (0.08, 1.0)
) -> v2.Compose:
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
        # The border is repeated outwards before moving, so that no corner of a made-up colour enters the picture.
        margin = math.ceil(0.3 * size)
        return v2.Compose(
            [
                v2.Resize((size, size), antialias=True),
                v2.Pad(margin, padding_mode="edge"),
                v2.RandomAffine(
                    DEGREES,
                    translate=(SHIFT * size / (size + 2 * margin),) * 2,  # the shares count from the padded side
                    scale=ZOOM,
                    interpolation=v2.InterpolationMode.BILINEAR,
                ),
                v2.CenterCrop(size),
                v2.PILToTensor(),
            ]
        )
    if not (len(scale) == 2 and 0 < scale[0] <= scale[1] <= 1):
        raise LikewiseError(f"augment: scale must be two shares with 0 < least <= largest <= 1, got {scale}")
    crop = v2.RandomResizedCrop(size, scale=scale, antialias=True)
    return v2.Compose([crop, v2.RandomHorizontalFlip(0.5 if flip else 0.0), v2.PILToTensor()])


def eval_transform(size: int, kind: Kind = "crop", resize: int | None = None) -> v2.Compose:
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
        near = difflib.get_close_matches(str(kind), KINDS, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise LikewiseError(f"augment: there is no kind {kind!r}; {guess}It is one of: {', '.join(KINDS)}")
