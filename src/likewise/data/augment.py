"""What a network sees of a picture: a square of grey levels 0..255, with or without chance. Models normalise.

Chance is drawn for a whole batch, from the seed and the number of the batch alone. So a batch is the same to the bit wherever its
pixels come from, and whoever makes a part of it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from likewise.data.color_jitter import check_jitter, factors, jitter
from likewise.data.crop_resize import check_size, send, shrink, stretch
from likewise.errors import LikewiseError, nearest_name

Kind = Literal["crop", "affine", "none"]
KINDS = ("crop", "affine", "none")

TRIES, RATIO = 10, (3 / 4, 4 / 3)
"""Of random boxes, as torchvision has them: how often one is drawn until it fits, and its width by height."""

DEGREES, SHIFT, ZOOM = 8.0, 0.08, (0.9, 1.1)
"""Of "affine": most that a picture is turned, moved (as a share of its side) and scaled."""

PLACE, PART, LANE = 20, 10, 21
"""Bits below the point of places in a picture, those of them that weigh neighbours, and bits that a colour takes while it is
weighed: three colours fit into a whole number of 64 bits."""

AT_ONCE = 2**15
"""Pixels moved at once on a CPU, so that they stay in its cache."""


class Plain:
    """The same every time: the short side resized to size * 256 / 224, and the middle of that; for other kinds than "crop",
    all of the picture resized.

    Args:
        size: side of the square, in pixels.
        side: a picture with a longer short side is shrunk to this one first.
    """

    columns = 0  # random numbers that a picture takes

    def __init__(self, size: int, kind: Kind = "crop", side: int | None = None):
        check(size, kind)
        if side is not None:
            check(side, kind)
        self.size, self.kind, self.side = size, kind, side

    def draw(self, count: int, seed: int, number: int) -> Float[np.ndarray, "B c"]:
        """Chance for the `count` pictures of batch `number`, as numbers in [0, 1)."""
        return np.random.default_rng((seed, number)).random((count, self.columns))

    def plan(self, whole: Int[np.ndarray, "B 2"], drawn: Float[np.ndarray, "B c"]) -> Int[np.ndarray, "B 9"]:
        """What of pictures of these heights and widths is cut out, as the last nine columns of a plan of `cut`."""
        corner = grown = np.zeros_like(whole)
        if self.kind == "crop":  # the short side exactly, the long one rounded down
            grown = whole * round(self.size * 256 / 224) // whole.min(1, keepdims=True)
        grown = np.maximum(grown, self.size)
        first = np.rint((grown - self.size) / 2).astype(np.int64)
        return np.column_stack((corner, whole, grown, first, corner[:, 0]))

    def finish(self, x: UInt8[Tensor, "B 3 s s"], drawn: Float[np.ndarray, "B c"]) -> UInt8[Tensor, "B 3 s s"]:
        """What is left to do once a batch is cut out, wherever it is."""
        return x

    def on_image(self, image: Image.Image, drawn: Float[np.ndarray, "c"]) -> UInt8[np.ndarray, "s s 3"]:
        """What `cut` makes of a picture, from the picture itself."""
        image = shrink(image, self.side)
        top, left, h, w, *rest = self.plan(np.array([image.size[::-1]]), drawn[None])[0].tolist()
        return stretch(image.crop((left, top, left + w, top + h)), *rest, self.size)  # pyright: ignore[reportCallIssue]

    def __call__(self, image: Image.Image, seed: int = 0) -> UInt8[Tensor, "3 s s"]:
        """A picture by itself, as a batch of one."""
        drawn = self.draw(1, seed, 0)
        square = self.on_image(image, drawn[0]).transpose(2, 0, 1).copy()
        return self.finish(torch.from_numpy(square)[None], drawn)[0]


class Augment(Plain):
    """Chance for training.

    Args:
        size: side of the square, in pixels.
        kind: "crop" cuts a random part of the picture, resizes it and mirrors every second one (photographs); "affine" moves,
            turns and scales the whole picture a little (characters and logos, where a flip or a hard cut makes another class);
            "none" resizes only.
        side: a picture with a longer short side is shrunk to this one first.
        scale: least and largest share of the area that "crop" keeps. Default from Szegedy et al. 2015, as all peers.
        jitter: how much brightness, contrast and saturation may change, see `jitter.factors`; None: not at all.
    """

    def __init__(
        self,
        size: int,
        kind: Kind = "crop",
        side: int | None = None,
        scale: tuple[float, float] = (0.08, 1.0),
        jitter: tuple[float, float, float] | None = None,
    ):
        super().__init__(size, kind, side)
        if not (len(scale) == 2 and 0 < scale[0] <= scale[1] <= 1):
            raise LikewiseError(f"augment: scale must be two shares with 0 < least <= largest <= 1, got {scale}")
        if jitter is not None:
            check_jitter(jitter)
        self.scale, self.jitter = scale, jitter
        self.columns = {"crop": 2 * TRIES + 3, "affine": 4, "none": 0}[kind]

    def draw(self, count: int, seed: int, number: int) -> Float[np.ndarray, "B c"]:
        drawn = super().draw(count, seed, number)
        if self.jitter is None:
            return drawn
        return np.concatenate([drawn, np.random.default_rng((seed, number, 1)).random((count, 3))], 1)

    def plan(self, whole: Int[np.ndarray, "B 2"], drawn: Float[np.ndarray, "B c"]) -> Int[np.ndarray, "B 9"]:
        if self.kind != "crop":
            return super().plan(whole, drawn)
        boxes = random_boxes(whole, self.scale, drawn[:, 1 : self.columns])
        corner = np.zeros_like(whole)
        return np.column_stack((boxes, corner + self.size, corner, drawn[:, 0] < 0.5))

    def finish(self, x: UInt8[Tensor, "B 3 s s"], drawn: Float[np.ndarray, "B c"]) -> UInt8[Tensor, "B 3 s s"]:
        if self.kind == "affine":
            x = move(x, send(torch.from_numpy(motions(drawn[:, :4], self.size)), x.device))
        if self.jitter is not None:
            x = jitter(x, send(torch.from_numpy(factors(drawn[:, -3:], self.jitter)), x.device))
        return x


def random_boxes(
    whole: Int[np.ndarray, "B 2"], scale: tuple[float, float], chance: Float[np.ndarray, "B c"]
) -> Int[np.ndarray, "B 4"]:
    """Boxes (top, left, height, width) as torchvision's RandomResizedCrop draws them, of a random area and shape; where none of
    the tries fits, the middle of the picture.

    Args:
        whole: height and width of each picture.
        chance: numbers in [0, 1): areas and shapes of all tries, then the two of the corner.
    """
    share, shape, corner = np.split(chance, [TRIES, 2 * TRIES], 1)
    area = whole.prod(1, keepdims=True) * (scale[0] + (scale[1] - scale[0]) * share)
    low, high = np.log(RATIO)
    ratio = np.exp(low + (high - low) * shape)
    tried = np.rint(np.sqrt(np.stack([area / ratio, area * ratio], 2))).astype(np.int64)
    fits = ((tried > 0) & (tried <= whole[:, None])).all(2)
    drawn = tried[np.arange(len(whole)), fits.argmax(1)]
    # The largest box of an allowed shape: the other side of the picture bounds either of its own.
    middle = np.minimum(whole, np.rint(whole[:, ::-1] * [1 / RATIO[0], RATIO[1]]).astype(np.int64))
    found = fits.any(1, keepdims=True)  # pyright: ignore[reportArgumentType]
    extent = np.where(found, drawn, middle)
    corner = np.where(found, np.floor(corner * (whole - extent + 1)), (whole - extent) // 2)
    return np.concatenate([corner.astype(np.int64), extent], 1)


def motions(chance: Float[np.ndarray, "B 4"], size: int) -> Int[np.ndarray, "B 4"]:
    """Small turns, zooms and shifts (right, down) about the middle of a square. Pixel (i, j) of the moved square comes from row
    a i - b j + d, column a j + b i + c of the old one, in parts of 2**PLACE: a, b, c, d."""
    turn, zoom, right, down = (2 * chance - 1).T
    angle, scale = np.radians(DEGREES * turn), (ZOOM[0] + ZOOM[1]) / 2 + (ZOOM[1] - ZOOM[0]) / 2 * zoom
    a, b = np.cos(angle) / scale, np.sin(angle) / scale
    middle = (size - 1) / 2
    x, y = middle + SHIFT * size * right, middle + SHIFT * size * down
    return np.rint(np.stack([a, b, middle - a * x - b * y, middle + b * x - a * y], 1) * 2**PLACE).astype(np.int64)


def move(x: UInt8[Tensor, "B 3 s s"], motion: Int[Tensor, "B 4"]) -> UInt8[Tensor, "B 3 s s"]:
    """Pictures moved by `motions`, their border repeated outwards so that no made-up colour enters.

    A new pixel is weighed from four old ones, in whole numbers and so the same on every device; its three colours in one number,
    side by side.
    """
    if x.device.type == "cpu":
        pieces = max(1, AT_ONCE // x[0, 0].numel()) if len(x) else 1
        parts = zip(x.split(pieces), motion.split(pieces), strict=True)
        return torch.cat([_move(*part) for part in parts])
    return _move(x, motion)


def _move(x: UInt8[Tensor, "b 3 s s"], motion: Int[Tensor, "b 4"]) -> UInt8[Tensor, "b 3 s s"]:
    size, lanes = x.shape[-1], 1 | 1 << LANE | 1 << 2 * LANE
    red, green, blue = x.long().flatten(2).unbind(1)
    colour = red | green << LANE | blue << 2 * LANE
    a, b, c, d = motion[:, :, None, None].unbind(1)
    at = torch.arange(size, device=x.device)
    column, row = a * at + c + b * at[:, None], a * at[:, None] + d - b * at
    left, top = (place >> PLACE for place in (column, row))
    over, below = (place >> PLACE - PART & (1 << PART) - 1 for place in (column, row))

    def weighed(line: Tensor) -> Tensor:
        """Between two neighbours of a line, with three bits below the point."""
        line = line.clamp(0, size - 1) * size
        one, two = (colour.gather(1, (line + to.clamp(0, size - 1)).flatten(1)) for to in (left, left + 1))
        mean = (one << PART) + (two - one) * over.flatten(1) + lanes * (1 << PART - 4)
        return mean >> PART - 3 & lanes * (2**11 - 1)

    upper, lower = weighed(top), weighed(top + 1)
    made = (upper << PART) + (lower - upper) * below.flatten(1) + lanes * (1 << PART + 2)
    found = [(made >> PART + 3 + LANE * k & 255).to(torch.uint8) for k in range(3)]
    return torch.stack(found, 1).unflatten(2, (size, size))


def check(size: int, kind: str) -> None:
    """Raise unless this is a side in pixels and a kind of augmentation."""
    check_size(size)
    if kind not in KINDS:
        raise LikewiseError(
            f"augment: there is no kind {kind!r}{nearest_name(str(kind), KINDS)} It is one of: {', '.join(KINDS)}"
        )
