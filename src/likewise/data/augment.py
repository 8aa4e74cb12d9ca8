"""Image transforms: from image to a square of uint8 values, with or without random augmentation. Models normalise.

The random numbers of a batch depend only on the seed and the number of the batch. So a batch has the same bits wherever its
pixels come from, and whichever process computes a share of it.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from likewise.core.argument_checks import CheckedArguments, Count, NotNegative, ShareAboveZero
from likewise.core.errors import LikewiseError
from likewise.data.crop_resize import send, shrink, stretch
from likewise.models.pretrained.foundation import USUAL_PREPROCESS, Preprocess

Kind = Literal["crop", "affine", "none"]

BOX_TRIES, RATIO_RANGE = 10, (3 / 4, 4 / 3)
"""Random boxes, as in torchvision: most draws until a box fits, and the range of width / height."""

MAX_TURN_DEGREES, MAX_SHIFT_SHARE, ZOOM_RANGE = 8.0, 0.08, (0.9, 1.1)
"""Augmentation "affine": largest rotation in degrees, largest shift as a share of the side, and range of the scale."""

POSITION_BITS, WEIGHT_BITS, COLOUR_BITS = 20, 10, 21
"""Fixed-point arithmetic of `move`: fraction bits of a pixel position; those of them that are interpolation weights; bits per
colour channel, so that three channels fit into an int64."""

CHUNK_PIXELS = 2**15
"""Pixels that `move` processes at once on a CPU, so that they stay in its cache."""

FACTOR_UNIT = 2**12
"""Fixed-point unit of the factors of colour jitter: this value means 1."""

GREY_WEIGHTS = (2989, 5870, 1140)
"""Luminance weights of red, green and blue, in units of 1/10000, as in torchvision."""


class Plain(CheckedArguments):
    """Deterministic transform: the short side resized to size * 256 / 224, then a centre crop; for kinds other than "crop",
    the whole image resized. Foundation backbones have another ratio, and bicubic interpolation.

    Args:
        size: side of the square, in pixels.
        kind: the kind of augmentation used in training, see `Augment`.
        side: an image with a longer short side is shrunk to this short side first, always bilinear.
        preprocess: interpolation and resizing of the backbone.
    """

    columns = 0  # random numbers per image

    def __init__(
        self, size: Count, kind: Kind = "crop", side: Count | None = None, *, preprocess: Preprocess = USUAL_PREPROCESS
    ):
        self.size, self.kind, self.side, self.preprocess = size, kind, side, preprocess

    @property
    def short_side(self) -> int | None:
        """Short side of an image after resizing, before the centre crop; None: the whole image becomes the square."""
        ratio = self.preprocess.ratio
        return None if self.kind != "crop" or ratio is None else round(self.size * ratio)

    def draw(self, count: int, seed: int, number: int) -> Float[np.ndarray, "B c"]:
        """Return the random numbers in [0, 1) for the `count` images of batch `number`."""
        return np.random.default_rng((seed, number)).random((count, self.columns))

    def plan(self, whole: Int[np.ndarray, "B 2"], drawn: Float[np.ndarray, "B c"]) -> Int[np.ndarray, "B 9"]:
        """Return the boxes for images of these heights and widths, as the last nine columns of a plan of `cut`."""
        corner = grown = np.zeros_like(whole)
        if self.short_side is not None:  # the short side exactly, the long one rounded down
            grown = whole * self.short_side // whole.min(1, keepdims=True)
        grown = np.maximum(grown, self.size)
        first = np.rint((grown - self.size) / 2).astype(np.int64)
        return np.column_stack((corner, whole, grown, first, corner[:, 0]))

    def finish(self, x: UInt8[Tensor, "B 3 s s"], drawn: Float[np.ndarray, "B c"]) -> UInt8[Tensor, "B 3 s s"]:
        """Apply the augmentations that follow cropping and resizing, on the device of the batch."""
        return x

    def on_image(self, image: Image.Image, drawn: Float[np.ndarray, "c"]) -> UInt8[np.ndarray, "s s 3"]:
        """Return the same square as `cut`, computed from a Pillow image."""
        image = shrink(image, self.side)
        top, left, h, w, *rest = self.plan(np.array([image.size[::-1]]), drawn[None])[0].tolist()
        box, by = image.crop((left, top, left + w, top + h)), self.preprocess.interpolation
        return stretch(box, *rest, self.size, by)  # pyright: ignore[reportCallIssue]

    def __call__(self, image: Image.Image, seed: int = 0) -> UInt8[Tensor, "3 s s"]:
        """Transform a single image, as a batch of one."""
        drawn = self.draw(1, seed, 0)
        square = self.on_image(image, drawn[0]).transpose(2, 0, 1).copy()
        return self.finish(torch.from_numpy(square)[None], drawn)[0]


class Augment(Plain):
    """Random augmentation for training.

    Args:
        size: side of the square, in pixels.
        kind: "crop" crops a random box, resizes it and mirrors it with probability 1/2 (photographs); "affine" shifts,
            rotates and scales the whole image a little (characters and logos, where a flip or a tight crop changes the class);
            "none" resizes only.
        side: an image with a longer short side is shrunk to this short side first.
        scale: smallest and largest share of the area that "crop" keeps. Default from Szegedy et al. 2015, as in all peers.
        jitter: strengths of brightness, contrast and saturation changes, see `factors`; None: no change.
        preprocess: interpolation of the backbone; its resizing applies to the kinds that do not crop at random.
    """

    def __init__(
        self,
        size: Count,
        kind: Kind = "crop",
        side: Count | None = None,
        scale: tuple[ShareAboveZero, ShareAboveZero] = (0.08, 1.0),
        jitter: tuple[NotNegative, NotNegative, NotNegative] | None = None,
        *,
        preprocess: Preprocess = USUAL_PREPROCESS,
    ):
        super().__init__(size, kind, side, preprocess=preprocess)
        if scale[0] > scale[1]:
            raise LikewiseError(f"Augment: scale must be two shares, the smallest first, got {scale}; swap them")
        self.scale, self.jitter = scale, jitter
        self.columns = {"crop": 2 * BOX_TRIES + 3, "affine": 4, "none": 0}[kind]

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
    """Return random boxes (top, left, height, width) as torchvision's RandomResizedCrop draws them, of random area and shape;
    a centre crop if no draw fits.

    Args:
        whole: height and width of each image.
        scale: smallest and largest share of the area.
        chance: random numbers in [0, 1): areas of all draws, shapes of all draws, then two for the corner.
    """
    share, shape, corner = np.split(chance, [BOX_TRIES, 2 * BOX_TRIES], 1)
    area = whole.prod(1, keepdims=True) * (scale[0] + (scale[1] - scale[0]) * share)
    low, high = np.log(RATIO_RANGE)
    ratio = np.exp(low + (high - low) * shape)
    tried = np.rint(np.sqrt(np.stack([area / ratio, area * ratio], 2))).astype(np.int64)
    fits = ((tried > 0) & (tried <= whole[:, None])).all(2)
    drawn = tried[np.arange(len(whole)), fits.argmax(1)]
    # The largest centred box of an allowed shape: each side is bounded by the other side of the image.
    middle = np.minimum(whole, np.rint(whole[:, ::-1] * [1 / RATIO_RANGE[0], RATIO_RANGE[1]]).astype(np.int64))
    found = fits.any(1, keepdims=True)  # pyright: ignore[reportArgumentType]
    extent = np.where(found, drawn, middle)
    corner = np.where(found, np.floor(corner * (whole - extent + 1)), (whole - extent) // 2)
    return np.concatenate([corner.astype(np.int64), extent], 1)


def motions(chance: Float[np.ndarray, "B 4"], size: int) -> Int[np.ndarray, "B 4"]:
    """Return affine maps (a, b, c, d), in units of 2**-POSITION_BITS: small rotations, scalings and shifts about the centre.

    Pixel (i, j) of the moved square comes from row a i - b j + d, column a j + b i + c of the original square.
    """
    turn, zoom, right, down = (2 * chance - 1).T
    angle = np.radians(MAX_TURN_DEGREES * turn)
    scale = (ZOOM_RANGE[0] + ZOOM_RANGE[1]) / 2 + (ZOOM_RANGE[1] - ZOOM_RANGE[0]) / 2 * zoom
    a, b = np.cos(angle) / scale, np.sin(angle) / scale
    middle = (size - 1) / 2
    x, y = middle + MAX_SHIFT_SHARE * size * right, middle + MAX_SHIFT_SHARE * size * down
    found = np.stack([a, b, middle - a * x - b * y, middle + b * x - a * y], 1)
    return np.rint(found * 2**POSITION_BITS).astype(np.int64)


def move(x: UInt8[Tensor, "B 3 s s"], motion: Int[Tensor, "B 4"]) -> UInt8[Tensor, "B 3 s s"]:
    """Apply the affine maps of `motions` to a batch; pixels outside an image repeat its border.

    A new pixel interpolates four old ones in integer arithmetic, so the result is the same on every device. The three colours
    are packed into one int64.
    """
    if x.device.type == "cpu":
        pieces = max(1, CHUNK_PIXELS // x[0, 0].numel()) if len(x) else 1
        chunks = zip(x.split(pieces), motion.split(pieces), strict=True)
        return torch.cat([_move(*chunk) for chunk in chunks])
    return _move(x, motion)


def _move(x: UInt8[Tensor, "b 3 s s"], motion: Int[Tensor, "b 4"]) -> UInt8[Tensor, "b 3 s s"]:
    size, lanes = x.shape[-1], 1 | 1 << COLOUR_BITS | 1 << 2 * COLOUR_BITS
    red, green, blue = x.long().flatten(2).unbind(1)
    colour = red | green << COLOUR_BITS | blue << 2 * COLOUR_BITS
    a, b, c, d = motion[:, :, None, None].unbind(1)
    at = torch.arange(size, device=x.device)
    column, row = a * at + c + b * at[:, None], a * at[:, None] + d - b * at
    left, top = (place >> POSITION_BITS for place in (column, row))
    over, below = (place >> POSITION_BITS - WEIGHT_BITS & (1 << WEIGHT_BITS) - 1 for place in (column, row))

    def weighed(line: Tensor) -> Tensor:
        """Interpolate between two neighbouring pixels of one image row; the result has three fraction bits."""
        line = line.clamp(0, size - 1) * size
        one, two = (colour.gather(1, (line + to.clamp(0, size - 1)).flatten(1)) for to in (left, left + 1))
        mean = (one << WEIGHT_BITS) + (two - one) * over.flatten(1) + lanes * (1 << WEIGHT_BITS - 4)
        return mean >> WEIGHT_BITS - 3 & lanes * (2**11 - 1)

    upper, lower = weighed(top), weighed(top + 1)
    made = (upper << WEIGHT_BITS) + (lower - upper) * below.flatten(1) + lanes * (1 << WEIGHT_BITS + 2)
    found = [(made >> WEIGHT_BITS + 3 + COLOUR_BITS * k & 255).to(torch.uint8) for k in range(3)]
    return torch.stack(found, 1).unflatten(2, (size, size))


def factors(chance: Float[np.ndarray, "B 3"], strength: tuple[float, float, float]) -> Int[np.ndarray, "B 3"]:
    """Return factors between max(0, 1 - strength) and 1 + strength, in units of 1 / FACTOR_UNIT."""
    most = 1 + np.asarray(strength, np.float64)
    least = np.maximum(0, 2 - most)
    return np.rint((least + (most - least) * chance) * FACTOR_UNIT).astype(np.int64)


def jitter(x: UInt8[Tensor, "B 3 h w"], factor: Int[Tensor, "B 3"]) -> UInt8[Tensor, "B 3 h w"]:
    """Change brightness, then contrast (relative to the image's mean grey), then saturation (relative to each pixel's grey).

    All in integers, so equal on every device. Each is rounded down, as by torchvision's adjust_brightness, adjust_contrast and
    adjust_saturation.

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
    """Return the luminance of every pixel, rounded down."""
    red, green, blue = x.unbind(1)
    return ((GREY_WEIGHTS[0] * red + GREY_WEIGHTS[1] * green + GREY_WEIGHTS[2] * blue) // 10000)[:, None]
