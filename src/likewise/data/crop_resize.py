"""Boxes of pictures, resized to squares: the same grey levels by Pillow, by torch on any device, and by a kernel on a GPU.

A plan is a line of whole numbers for each picture: start and stride (where its pixels lie among all), top, left, height and width
of its box, height and width it is resized to, the first row and column kept of that, and whether it is mirrored. Resizing is
Pillow's, along rows and then along columns.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor

from likewise.errors import LikewiseError

PIXELS = 2**22
"""Pixels worked on at once, which bounds memory."""

BITS = 22
"""Of Pillow's weights, which are whole numbers and add up to 2**BITS."""


def check_size(size: int) -> None:
    """Raise unless this is the side of a picture in pixels."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise LikewiseError(f"augment: size must be a whole number of pixels above 0, got {size!r}")


def cut(
    pixels: UInt8[Tensor, "P 3"] | UInt8[np.ndarray, "P 3"], plan: Int[np.ndarray, "B 11"], size: int
) -> UInt8[Tensor, "B 3 s s"]:
    """The squares of a plan, where the pixels are: arrays go through Pillow, tensors through torch or a kernel."""
    if isinstance(pixels, np.ndarray):
        return cut_by_pillow(pixels, plan, size)
    if not len(plan):  # a share of a small batch
        return pixels.new_empty(0, 3, size, size)
    if pixels.is_cuda:
        from likewise.data import crop_resize_triton

        if crop_resize_triton.works():
            return crop_resize_triton.cut(pixels, send(torch.from_numpy(plan), pixels.device), size)
    pieces = math.ceil(len(plan) * int(plan[:, 4:6].max(0).prod()) / PIXELS)
    return torch.cat([_cut_by_torch(pixels, piece, size) for piece in np.array_split(plan, min(pieces, len(plan)))])


def cut_by_pillow(
    pixels: UInt8[np.ndarray, "P 3"], plan: Int[np.ndarray, "B 11"], size: int
) -> UInt8[Tensor, "B 3 s s"]:
    """Picture after picture; large ones by as many threads as torch may use, which small ones would only wait for."""
    made = np.empty((len(plan), 3, size, size), np.uint8)

    def one(number: int) -> None:
        start, stride, top, left, h, w, *rest = plan[number].tolist()
        box = pixels[start + top * stride : start + (top + h) * stride].reshape(h, stride, 3)[:, left : left + w]
        made[number] = stretch(box, *rest, size).transpose(2, 0, 1)  # pyright: ignore[reportCallIssue]

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
) -> UInt8[np.ndarray, "s s 3"]:
    """One box resized, along rows first: one axis at a time, for which of two Pillow begins with depends on its version."""
    read = isinstance(box, Image.Image)
    wide, high = box.size if read else box.shape[1::-1]
    if (high, wide) != (grown_h, grown_w):
        image = (box if read else Image.fromarray(box)).resize((grown_w, high), Image.Resampling.BILINEAR)
        if grown_w != size:
            image = image.crop((first_w, 0, first_w + size, high))
        box, first_w = image.resize((size, grown_h), Image.Resampling.BILINEAR), 0
    made = np.asarray(box)[first_h : first_h + size, first_w : first_w + size]
    return made[:, ::-1] if flip else made


def shrink(image: Image.Image, side: int | None) -> Image.Image:
    """A picture whose short side is longer than `side`, resized to that, along rows first; any other as it is."""
    short = min(image.size)
    if side is None or short <= side:
        return image
    wide, high = (side * length // short for length in image.size)
    image = image.resize((wide, image.height), Image.Resampling.BILINEAR)
    return image.resize((wide, high), Image.Resampling.BILINEAR)


def send(t: Tensor, device: torch.device) -> Tensor:
    """To the device without waiting for it, which takes pinned memory."""
    if device.type == "cuda" and t.device.type == "cpu" and not t.is_pinned():
        t = t.pin_memory()
    return t.to(device, non_blocking=True)


def _cut_by_torch(pixels: UInt8[Tensor, "P 3"], plan: Int[np.ndarray, "b 11"], size: int) -> UInt8[Tensor, "b 3 s s"]:
    """Gather the boxes, padded to the largest, and resize them. Shapes are known here, so nothing waits for the device."""
    count, (high, wide) = len(plan), plan[:, 4:6].max(0).tolist()
    there = send(torch.from_numpy(plan), pixels.device)
    start, stride, top, left = there[:, :4, None].unbind(1)
    h, w, grown_h, grown_w, first_h, first_w, flip = there[:, 4:].unbind(1)
    down = top + torch.arange(high, device=pixels.device).minimum(h[:, None] - 1)
    right = left + torch.arange(wide, device=pixels.device).minimum(w[:, None] - 1)
    pixel = (start + down * stride)[:, :, None] + right[:, None, :]
    x = pixels.index_select(0, pixel.flatten()).view(count, high, wide, 3).permute(0, 3, 1, 2).float()
    bits = 11 if (plan[:, 4:6] <= 13 * plan[:, 6:8]).all() else 8
    x = resize_rows(x, triangle(w, grown_w, first_w, size, wide, flip), bits).mT
    x = resize_rows(x, triangle(h, grown_h, first_h, size, high), bits).mT
    return x.to(torch.uint8).contiguous()


def resize_rows(x: Float[Tensor, "b 3 m l"], weight: Int[Tensor, "b s l"], bits: int) -> Float[Tensor, "b 3 m s"]:
    """Weighted means along the last axis, rounded to whole numbers.

    Weights go in so many bits at a time, the lowest first. Their sums of products with pixels float32 holds exactly, in whatever
    order (tensor cores too): 11 bits are right for 28 pixels, enough to shrink 13 times; 8 bits for 250.
    """
    flat, mean = x.flatten(1, 2), x.new_full((1, 1, 1), 2 ** (BITS - 1))
    with torch.autocast(x.device.type, enabled=False):
        for low in range(0, BITS, bits):
            last = low + bits >= BITS
            unit = 2 ** (BITS - low if last else bits)
            part = weight >> low if last else weight >> low & unit - 1  # the last may be the unit itself
            mean = torch.baddbmm(mean, flat, part.float().mT / unit, beta=1 / unit).floor_()
    return mean.unflatten(1, x.shape[1:3])


def triangle(
    length: Int[Tensor, "b"],
    grown: Int[Tensor, "b"],
    first: Int[Tensor, "b"],
    size: int,
    longest: int,
    flip: Int[Tensor, "b"] | None = None,
) -> Int[Tensor, "b s l"]:
    """How much of each pixel of a side goes into each of `size` new ones, from number `first` of the `grown` side on.

    A new pixel's weights fall off linearly from its centre, over one old pixel or, when shrinking, over one new one; they add up
    to 2**BITS. In units of half an old pixel times a new one, places and distances are whole numbers.
    """
    new = torch.arange(size, device=length.device).expand(len(length), -1)
    if flip is not None:
        new = torch.where(flip[:, None] > 0, size - 1 - new, new)
    new, old = new + first[:, None], torch.arange(longest, device=length.device)
    length, grown = length[:, None, None], grown[:, None, None]
    apart = ((2 * old + 1) * grown - (2 * new[:, :, None] + 1) * length).abs()
    weight = (2 * length.maximum(grown) - apart).clamp(min=0) * (old < length)
    total = weight.sum(2, keepdim=True)
    return ((weight << (BITS + 1)) + total) // (2 * total)  # rounded
