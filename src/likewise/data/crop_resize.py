"""Crop boxes of images and resize them to squares: with the same values by Pillow, by torch on any device, and by a GPU kernel.

A plan has one row of integers per image: start (first pixel in the array of all pixels), stride (width of the image); top, left,
height and width of its box; height and width after resizing; first row and column of the square in the resized box; and whether
the square is mirrored. Resizing is that of Pillow, bilinear or bicubic with antialiasing, along rows and then along columns.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.models.pretrained.foundation import Interpolation

CHUNK_PIXELS = 2**22
"""Pixels that torch resizes at once, which bounds memory."""

WEIGHT_BITS = 22
"""Precision of Pillow's resampling weights: integers that sum to 2**WEIGHT_BITS."""

PILLOW_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def check_size(size: int) -> None:
    """Raise unless `size` is a positive number of pixels."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise LikewiseError(
            f"augment: size must be a whole number of pixels above 0, got {size!r}; use 224, for example"
        )


def cut(
    pixels: UInt8[Tensor, "P 3"] | UInt8[np.ndarray, "P 3"],
    plan: Int[np.ndarray, "B 11"],
    size: int,
    interpolation: Interpolation = "bilinear",
) -> UInt8[Tensor, "B 3 s s"]:
    """Crop and resize as planned, on the device of the pixels: arrays with Pillow, tensors with torch or a Triton kernel."""
    if isinstance(pixels, np.ndarray):
        return cut_by_pillow(pixels, plan, size, interpolation)
    if not len(plan):  # this process has no share of a small batch
        return pixels.new_empty(0, 3, size, size)
    if pixels.is_cuda:
        from likewise.data import crop_resize_triton

        if crop_resize_triton.works(interpolation):
            return crop_resize_triton.cut(pixels, send(torch.from_numpy(plan), pixels.device), size, interpolation)
    pieces = math.ceil(len(plan) * int(plan[:, 4:6].max(0).prod()) / CHUNK_PIXELS)
    parts = np.array_split(plan, min(pieces, len(plan)))
    return torch.cat([_cut_by_torch(pixels, part, size, interpolation) for part in parts])


def cut_by_pillow(
    pixels: UInt8[np.ndarray, "P 3"],
    plan: Int[np.ndarray, "B 11"],
    size: int,
    interpolation: Interpolation = "bilinear",
) -> UInt8[Tensor, "B 3 s s"]:
    """Crop and resize with Pillow, image by image; large images in several threads, which do not pay for small ones."""
    made = np.empty((len(plan), 3, size, size), np.uint8)

    def one(number: int) -> None:
        start, stride, top, left, h, w, *rest = plan[number].tolist()
        box = pixels[start + top * stride : start + (top + h) * stride].reshape(h, stride, 3)[:, left : left + w]
        made[number] = stretch(box, *rest, size, interpolation).transpose(2, 0, 1)  # pyright: ignore[reportCallIssue]

    large = int(plan[:, 4:6].prod(1).sum()) > len(plan) * 2**14
    threads = min(torch.get_num_threads(), len(plan) // 8) if large else 1
    if threads < 2:
        for number in range(len(plan)):
            one(number)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(one, range(len(plan))))
    return torch.from_numpy(made)


def stretch(
    box: Image.Image | UInt8[np.ndarray, "h w 3"],
    grown_h: int,
    grown_w: int,
    first_h: int,
    first_w: int,
    flip: int,
    size: int,
    interpolation: Interpolation = "bilinear",
) -> UInt8[np.ndarray, "s s 3"]:
    """Resize one box, rows first. One axis at a time, because the axis that Pillow begins with depends on its version."""
    by = PILLOW_FILTERS[interpolation]
    read = isinstance(box, Image.Image)
    wide, high = box.size if read else box.shape[1::-1]
    if (high, wide) != (grown_h, grown_w):
        image = (box if read else Image.fromarray(box)).resize((grown_w, high), by)
        if grown_w != size:
            image = image.crop((first_w, 0, first_w + size, high))
        box, first_w = image.resize((size, grown_h), by), 0
    made = np.asarray(box)[first_h : first_h + size, first_w : first_w + size]
    return made[:, ::-1] if flip else made


def shrink(image: Image.Image, side: int | None) -> Image.Image:
    """Shrink an image to the short side `side`, along rows first; a smaller image is returned unchanged."""
    short = min(image.size)
    if side is None or short <= side:
        return image
    wide, high = (side * length // short for length in image.size)
    image = image.resize((wide, image.height), Image.Resampling.BILINEAR)
    return image.resize((wide, high), Image.Resampling.BILINEAR)


def send(t: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device asynchronously, through pinned memory."""
    if device.type == "cuda" and t.device.type == "cpu" and not t.is_pinned():
        t = t.pin_memory()
    return t.to(device, non_blocking=True)


def _cut_by_torch(
    pixels: UInt8[Tensor, "P 3"], plan: Int[np.ndarray, "b 11"], size: int, interpolation: Interpolation
) -> UInt8[Tensor, "b 3 s s"]:
    """Gather the boxes, padded to the largest, and resize them, without a device sync: the shapes are known on the host."""
    count, (high, wide) = len(plan), plan[:, 4:6].max(0).tolist()
    there = send(torch.from_numpy(plan), pixels.device)
    start, stride, top, left = there[:, :4, None].unbind(1)
    h, w, grown_h, grown_w, first_h, first_w, flip = there[:, 4:].unbind(1)
    down = top + torch.arange(high, device=pixels.device).minimum(h[:, None] - 1)
    right = left + torch.arange(wide, device=pixels.device).minimum(w[:, None] - 1)
    pixel = (start + down * stride)[:, :, None] + right[:, None, :]
    x = pixels.index_select(0, pixel.flatten()).view(count, high, wide, 3).permute(0, 3, 1, 2).float()
    weigh = triangle if interpolation == "bilinear" else cubic
    bits = 11 if weigh is triangle and (plan[:, 4:6] <= 13 * plan[:, 6:8]).all() else 8
    x = resize_rows(x, weigh(w, grown_w, first_w, size, wide, flip), bits).mT
    x = resize_rows(x, weigh(h, grown_h, first_h, size, high), bits).mT
    return x.to(torch.uint8).contiguous()


def resize_rows(x: Float[Tensor, "b 3 m l"], weight: Int[Tensor, "b s l"], bits: int) -> Float[Tensor, "b 3 m s"]:
    """Return weighted means along the last axis, rounded to integers from 0 to 255; bicubic ones may lie outside before.

    The weights are split into groups of `bits` bits, processed from the lowest, so that float32 holds the sums of products with
    pixels exactly in any order (tensor cores too): 11 bits are exact for 28 pixels, enough to shrink 13 times; 8 bits for 250.
    """
    flat, mean = x.flatten(1, 2), x.new_full((1, 1, 1), 2 ** (WEIGHT_BITS - 1))
    with torch.autocast(x.device.type, enabled=False):
        for low in range(0, WEIGHT_BITS, bits):
            last = low + bits >= WEIGHT_BITS
            unit = 2 ** (WEIGHT_BITS - low if last else bits)
            group = weight >> low if last else weight >> low & unit - 1  # the highest group may equal the unit itself
            mean = torch.baddbmm(mean, flat, group.float().mT / unit, beta=1 / unit).floor_()
    return mean.clamp_(0, 255).unflatten(1, x.shape[1:3])


def triangle(
    length: Int[Tensor, "b"],
    grown: Int[Tensor, "b"],
    first: Int[Tensor, "b"],
    size: int,
    longest: int,
    flip: Int[Tensor, "b"] | None = None,
) -> Int[Tensor, "b s l"]:
    """Return the bilinear weights of every old pixel for `size` new pixels, from pixel `first` of the resized side on.

    Args:
        length: pixels of the old side; `longest` is the padded length.
        grown: pixels of the resized side.
        flip: whether the new pixels are in reverse order.

    The weights of a new pixel fall off linearly from its centre, over one old pixel or, when shrinking, over one new pixel; they
    sum to 2**WEIGHT_BITS. In units of half an old pixel times a new pixel, positions and distances are integers.
    """
    new, old = _positions(first, size, longest, flip)
    length, grown = length[:, None, None], grown[:, None, None]
    apart = ((2 * old + 1) * grown - (2 * new[:, :, None] + 1) * length).abs()
    weight = (2 * length.maximum(grown) - apart).clamp(min=0) * (old < length)
    total = weight.sum(2, keepdim=True)
    return ((weight << (WEIGHT_BITS + 1)) + total) // (2 * total)  # rounded


def cubic(
    length: Int[Tensor, "b"],
    grown: Int[Tensor, "b"],
    first: Int[Tensor, "b"],
    size: int,
    longest: int,
    flip: Int[Tensor, "b"] | None = None,
) -> Int[Tensor, "b s l"]:
    """Return the bicubic weights, as `triangle` does the bilinear ones: Keys' cubic with a = -1/2, over two old or new pixels.

    They are computed as in Pillow, in float64, and rounded away from zero at a half.
    """
    device = length.device
    if device.type == "mps":  # has no float64
        length, grown, first, flip = (None if t is None else t.cpu() for t in (length, grown, first, flip))  # pyright: ignore[reportAssignmentType]
    new, old = _positions(first, size, longest, flip)
    scale = (length.double() / grown)[:, None, None]
    x = ((old - (new[:, :, None] + 0.5) * scale + 0.5) * (1 / scale.clamp(min=1))).abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, (((x - 5) * x + 8) * x - 4) * -0.5
    weight = torch.where(x < 1, near, torch.where(x < 2, far, 0)) * (old < length[:, None, None])
    exact = weight / weight.sum(2, keepdim=True) * 2**WEIGHT_BITS
    return (exact + torch.where(exact < 0, -0.5, 0.5)).trunc().long().to(device)


def _positions(
    first: Int[Tensor, "b"], size: int, longest: int, flip: Int[Tensor, "b"] | None
) -> tuple[Int[Tensor, "b s"], Int[Tensor, "l"]]:
    """Return the new pixels of the resized side, in the order of the square, and the old pixels."""
    new = torch.arange(size, device=first.device).expand(len(first), -1)
    if flip is not None:
        new = torch.where(flip[:, None] > 0, size - 1 - new, new)
    return new + first[:, None], torch.arange(longest, device=first.device)
