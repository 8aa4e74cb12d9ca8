"""Crop boxes of images and resize them to squares: with the same values by Pillow and by a GPU kernel.

A plan has one row of integers per image: start (first pixel in the array of all pixels), stride (width of the image); top, left,
height and width of its box; height and width after resizing; first row and column of the square in the resized box; and whether
the square is mirrored. Resizing is that of Pillow, bilinear or bicubic with antialiasing, along rows and then along columns.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Int, UInt8
from PIL import Image
from torch import Tensor

from likewise.models.pretrained.foundation import Interpolation

PILLOW_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def cut(
    pixels: UInt8[Tensor, "P 3"] | UInt8[np.ndarray, "P 3"],
    plan: Int[np.ndarray, "B 11"],
    size: int,
    interpolation: Interpolation = "bilinear",
) -> UInt8[Tensor, "B 3 s s"]:
    """Crop and resize as planned: arrays with Pillow, tensors in GPU memory with a Triton kernel.

    Pillow works image by image; on large images in several threads, which do not pay for small ones.
    """
    if not isinstance(pixels, np.ndarray):
        from likewise.data import crop_resize_triton

        if not len(plan):  # this process has no share of a small batch
            return pixels.new_empty(0, 3, size, size)
        return crop_resize_triton.cut(pixels, send(torch.from_numpy(plan), pixels.device), size, interpolation)
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


def cuts_on(device: torch.device) -> bool:
    """Whether `cut` works in the memory of this device: a GPU with CUDA, for which Triton can compile the kernel."""
    if device.type != "cuda":
        return False
    from likewise.data import crop_resize_triton  # imports Triton

    return crop_resize_triton.works()


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
