"""Placement of decoded images: in device memory, in host memory or on disk. Batches are cropped from there.

The placement changes only the speed: a batch has the same bits as if its images were read from their files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from likewise.core.distributed.collectives import world
from likewise.core.files import cache_folder
from likewise.core.types import Items, LikewiseError
from likewise.data.augment import Plain
from likewise.data.crop_resize import cut, cuts_on, send
from likewise.data.decoded_cache import Pixels, decoded_bytes, home_of, is_cached, open_cache, open_pixels
from likewise.data.images import BadImage

Keep = Literal["auto", "files", "disk", "host", "device"]

CHUNK_PIXELS = 2**24
"""Pixels copied to the device at once."""


class Resident:
    """Decoded images of some rows of a data set, three bytes per pixel.

    Args:
        pixels: the decoded images of the whole data set.
        rows: the rows that batches may contain.
        device: where batches are computed.
        keep: "device": the pixels of these rows are in device memory; "host": in host memory; "disk": they are read for
            every batch. For "host" and "disk", the pixels of a batch are gathered ahead of time and copied to the device.
            On the CPU, and for a device that cannot run the kernel of `cut`, "device" and "host" use `pixels` without a copy.
    """

    def __init__(
        self, pixels: Pixels, rows: Int[np.ndarray, "n"], device: torch.device, keep: Literal["disk", "host", "device"]
    ):
        device = device if cuts_on(device) else torch.device("cpu")
        self.pixels, self.device = pixels, device
        # Whether `stage` has work that is worth doing ahead of time.
        self.ahead = keep == "disk" or (keep == "host" and device.type != "cpu")
        self._flat, self._start, self._verified = np.asarray(pixels.flat), pixels.start, False
        if device.type != "cpu" and keep != "disk":
            flat, self._start = gather_rows(pixels, rows, device if keep == "device" else torch.device("cpu"))
            self._flat, self._verified = flat if keep == "device" else flat.numpy(), True

    def stage(self, rows: list[int], look: Plain, drawn: np.ndarray) -> tuple[Tensor | np.ndarray, np.ndarray]:
        """Return the pixels and the plan for `cut` of a batch: the work on the host, which may be done ahead of time."""
        start, whole = self._start[rows], self.pixels.size[rows]
        if (start < 0).any():
            raise LikewiseError(
                f"Resident: rows of a batch must have been loaded, got row {rows[int((start < 0).argmax())]}; load it too"
            )
        if not self._verified:
            self.pixels.need(rows)
        plan = np.column_stack((start, whole[:, 1], look.plan(whole, drawn)))
        return self._boxes(plan) if self.ahead else (self._flat, plan)

    def make(self, staged: tuple[Tensor | np.ndarray, np.ndarray], look: Plain) -> UInt8[Tensor, "B 3 s s"]:
        """Return the squares of a batch on the device, without a device sync."""
        pixels, plan = staged
        if isinstance(pixels, Tensor):
            pixels = send(pixels, self.device)
        return cut(pixels, plan, look.size, look.preprocess.interpolation)

    def _boxes(self, plan: Int[np.ndarray, "B 11"]) -> tuple[Tensor | np.ndarray, Int[np.ndarray, "B 11"]]:
        """Return only the pixels of the boxes, concatenated (in pinned memory for CUDA), and the plan for them."""
        length = plan[:, 4] * plan[:, 5]
        at = np.cumsum(length) - length
        pinned = self.device.type == "cuda"
        packed = torch.empty(int(length.sum()), 3, dtype=torch.uint8, pin_memory=pinned)
        array = packed.numpy()
        for first, (start, stride, top, left, h, w, *_) in zip(at.tolist(), plan.tolist(), strict=True):
            rows_of_box = self._flat[start + top * stride : start + (top + h) * stride].reshape(h, stride, 3)
            array[first : first + h * w].reshape(h, w, 3)[...] = rows_of_box[:, left : left + w]
        zero = np.zeros_like(at)
        plan = np.column_stack((at, plan[:, 5], zero, zero, plan[:, 4:]))
        return (array if self.device.type == "cpu" else packed), plan


def gather_rows(
    pixels: Pixels, rows: Int[np.ndarray, "n"], device: torch.device
) -> tuple[UInt8[Tensor, "P 3"], Int[np.ndarray, "N"]]:
    """Copy the pixels of these rows to a device; return them, and the first pixel of every row there (-1: not copied)."""
    rows = np.unique(rows)
    length = pixels.size[rows].prod(1)
    start = np.full(len(pixels.size), -1)
    start[rows] = np.cumsum(length) - length
    total, at = int(length.sum()), 0
    try:
        held = torch.empty(total, 3, dtype=torch.uint8, device=device)
    except RuntimeError:
        raise LikewiseError(
            f"Resident: the images of {pixels.items.name} must fit on {device}, but need {3 * total / 1e9:.1f} GB; "
            "give a smaller --short-side, or --cache disk"
        ) from None
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
    for run in runs:
        pixels.need(run)
        first, last = int(pixels.start[run[0]]), int(pixels.start[run[-1]] + pixels.size[run[-1]].prod())
        for low in range(first, last, CHUNK_PIXELS):
            chunk = torch.from_numpy(np.array(pixels.flat[low : min(low + CHUNK_PIXELS, last)]))
            held[at : at + len(chunk)] = chunk
            at += len(chunk)
    return held, start


def hold(
    items: Items,
    rows: Int[np.ndarray, "n"],
    device: torch.device,
    keep: Keep = "auto",
    side: int | None = None,
    *,
    budget: int | None = None,
    workers: int = -1,
    quiet: bool = False,
    say: Callable[[str], None] = print,
) -> Resident | None:
    """Decode the images of these rows once and keep them. Returns None if images should be read from their files every time.

    Args:
        keep: where to keep them; "auto": on the device if they fit its budget, else in host memory if half of the free memory
            suffices, else on disk. If that fails, "auto" reports the problem and returns None.
        side: images with a longer short side are shrunk to this short side.
        budget: bytes of device memory that "auto" may use; None: half of the free memory.
        workers: threads that decode; -1: by the number of cores.
        `say`: called with messages.
    """
    if keep == "files" or items.x is not None:
        return None
    options = {"workers": workers, "quiet": quiet, "say": say}
    if keep != "auto":
        return Resident(open_pixels(items, side, **options), rows, device, keep)
    try:
        if not is_cached(items, side) and not has_room(length := decoded_bytes(items, side)):
            raise LikewiseError(f"not enough space for {length / 1e9:.1f} GB")
        pixels = open_pixels(items, side, **options)
        wanted = 3 * int(pixels.size[np.unique(rows)].prod(1).sum())
        return Resident(pixels, rows, device, choose(wanted, device, budget))
    except BadImage:
        raise
    except (LikewiseError, OSError) as error:
        say(f"images are read from their files every time, because they cannot be cached: {error}")
        return None


def fill_cache(items: Items, keep: Keep, side: int | None, workers: int = -1, quiet: bool = False) -> bool:
    """Decode all images into the cache on disk that `hold` uses; return whether it holds them all.

    Raises `BadImage` at the first image that cannot be decoded. See `hold` for the arguments.
    """
    if keep == "files" or items.x is not None:
        return False
    try:
        if keep == "auto" and not is_cached(items, side) and not has_room(decoded_bytes(items, side)):
            return False
        open_cache(items, side, home_of(items, side, None), workers=workers, quiet=quiet)
        return True
    except BadImage:
        raise
    except (LikewiseError, OSError):  # `hold` reports the problem
        return False


def choose(wanted: int, device: torch.device, budget: int | None) -> Literal["disk", "host", "device"]:
    """Return the fastest placement with enough memory for this number of bytes."""
    if device.type == "cpu" or wanted <= (free_on(device) if budget is None else budget):
        return "device"
    return "host" if wanted <= free() else "disk"


def open_cached(items: Items, rows: Int[np.ndarray, "n"], device: torch.device, side: int | None) -> Resident | None:
    """Return cached decoded images for a single use of each; None if there is no complete cache."""
    try:
        if items.x is None and is_cached(items, side):
            return once(open_pixels(items, side, quiet=True), rows, device)
    except (LikewiseError, OSError):
        pass  # the caller reads the image files instead
    return None


def once(pixels: Pixels | None, rows: Int[np.ndarray, "n"], device: torch.device) -> Resident | None:
    """Return decoded images placed for a single use of each; None if there are no pixels."""
    return pixels and Resident(pixels, rows, device, "device" if device.type == "cpu" else "disk")


def has_room(length: int) -> bool:
    """Whether the cache disk has twice this number of bytes free, or half of the free memory suffices."""
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    on_disk = os.access(folder, os.W_OK) and 2 * length <= shutil.disk_usage(folder).free
    return on_disk or length <= free()


def free_on(device: torch.device) -> int:
    """Return half of the free memory of a device in bytes."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else free()


def free(processes: int | None = None) -> int:
    """Return half of the free host memory in bytes, divided by the number of processes that train together.

    Args:
        processes: number of processes; None: those of the process group.
    """
    try:
        with open("/proc/meminfo") as facts:
            left = next(1024 * int(line.split()[1]) for line in facts if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux
        left = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 0
    return left // 2 // (processes or world()[1])
