"""Decoded pictures at hand: in the memory of the device, in that of the host, or on disk, cut out there a whole batch at a time.

Where they are changes nothing but the time it takes: a batch has the same bits as if its pictures were read from their files.
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

from likewise.data.augment import Plain
from likewise.data.crop_resize import cut, send
from likewise.data.decode import decoded_bytes
from likewise.data.decoded_cache import Pixels, is_cached, open_pixels
from likewise.data.images import BadImage
from likewise.distributed.collectives import world
from likewise.io.files import cache_folder
from likewise.types import Items, LikewiseError

Keep = Literal["auto", "files", "disk", "host", "device"]

CHUNK = 2**24
"""Pixels copied at once."""


class Resident:
    """Pictures of some rows of a data set, three bytes a pixel.

    Args:
        rows: whose pictures are asked for.
        device: where batches are made.
        keep: "device": the pixels of these rows are held in its memory; "host": in the memory of the host; "disk": nowhere, they
            are read as they are asked for. For the latter two, the pixels of a batch are put together ahead of time and sent.
            On the CPU, "device" and "host" are the pixels where they are.
    """

    def __init__(
        self, pixels: Pixels, rows: Int[np.ndarray, "n"], device: torch.device, keep: Literal["disk", "host", "device"]
    ):
        self.pixels, self.device = pixels, device
        # Whether there is something to do ahead of time.
        self.ahead = keep == "disk" or (keep == "host" and device.type != "cpu")
        self._flat, self._start, self._sure = np.asarray(pixels.flat), pixels.start, False
        if device.type != "cpu" and keep != "disk":
            flat, self._start = gather_rows(pixels, rows, device if keep == "device" else torch.device("cpu"))
            self._flat, self._sure = flat if keep == "device" else flat.numpy(), True

    def stage(self, rows: list[int], look: Plain, drawn: np.ndarray) -> tuple[Tensor | np.ndarray, np.ndarray]:
        """What is done on the host, perhaps ahead of time: pixels, and a plan for `cut`."""
        start, whole = self._start[rows], self.pixels.size[rows]
        if (start < 0).any():
            raise LikewiseError(
                f"Resident: only rows that were loaded can be asked for, got row {rows[int((start < 0).argmax())]}; load it too"
            )
        if not self._sure:
            self.pixels.need(rows)
        plan = np.column_stack((start, whole[:, 1], look.plan(whole, drawn)))
        return self._boxes(plan) if self.ahead else (self._flat, plan)

    def make(self, staged: tuple[Tensor | np.ndarray, np.ndarray], size: int) -> UInt8[Tensor, "B 3 s s"]:
        """The squares, on the device, which nothing waits for."""
        pixels, plan = staged
        if isinstance(pixels, Tensor):
            pixels = send(pixels, self.device)
        return cut(pixels, plan, size)

    def _boxes(self, plan: Int[np.ndarray, "B 11"]) -> tuple[Tensor | np.ndarray, Int[np.ndarray, "B 11"]]:
        """The boxes alone, one after another; pinned, where they are sent."""
        length = plan[:, 4] * plan[:, 5]
        at = np.cumsum(length) - length
        pinned = self.device.type == "cuda"
        packed = torch.empty(int(length.sum()), 3, dtype=torch.uint8, pin_memory=pinned)
        there = packed.numpy()
        for first, (start, stride, top, left, h, w, *_) in zip(at.tolist(), plan.tolist(), strict=True):
            picture = self._flat[start + top * stride : start + (top + h) * stride].reshape(h, stride, 3)
            there[first : first + h * w].reshape(h, w, 3)[...] = picture[:, left : left + w]
        nought = np.zeros_like(at)
        plan = np.column_stack((at, plan[:, 5], nought, nought, plan[:, 4:]))
        return (there if self.device.type == "cpu" else packed), plan


def gather_rows(
    pixels: Pixels, rows: Int[np.ndarray, "n"], device: torch.device
) -> tuple[UInt8[Tensor, "P 3"], Int[np.ndarray, "N"]]:
    """The pixels of these rows on a device, and where each row's begin there; -1: nowhere."""
    rows = np.unique(rows)
    length = pixels.size[rows].prod(1)
    start = np.full(len(pixels.size), -1)
    start[rows] = np.cumsum(length) - length
    total, at = int(length.sum()), 0
    try:
        held = torch.empty(total, 3, dtype=torch.uint8, device=device)
    except RuntimeError:
        raise LikewiseError(
            f"Resident: the pictures of {pixels.items.name} must fit on {device}, and take {3 * total / 1e9:.1f} GB; "
            "give a smaller --short-side, or --cache disk"
        ) from None
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
    for run in runs:
        pixels.need(run)
        first, last = int(pixels.start[run[0]]), int(pixels.start[run[-1]] + pixels.size[run[-1]].prod())
        for low in range(first, last, CHUNK):
            part = torch.from_numpy(np.array(pixels.flat[low : min(low + CHUNK, last)]))
            held[at : at + len(part)] = part
            at += len(part)
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
    """Pictures of these rows, decoded once and kept. None: they are to be read from their files every time.

    Args:
        keep: where; "auto": on the device where they fit its budget, else on the host where half of the free memory will do, else
            on disk, else nowhere. What goes wrong with "auto" is said, and pictures are read from their files.
        side: pictures with a longer short side are shrunk to this one.
        budget: bytes on the device that "auto" may take; None: half of what is free.
        workers: threads that decode, once; -1: as many as the cores can use.
    """
    if keep == "files" or items.x is not None:
        return None
    way = {"workers": workers, "quiet": quiet, "say": say}
    if keep != "auto":
        try:
            return Resident(open_pixels(items, side, **way), rows, device, keep)
        except BadImage as error:
            raise not_kept(error) from None
    try:
        if not is_cached(items, side) and not has_room(length := decoded_bytes(items, side)):
            raise LikewiseError(f"there is no room for {length / 1e9:.1f} GB")
        pixels = open_pixels(items, side, **way)
        wanted = 3 * int(pixels.size[np.unique(rows)].prod(1).sum())
        return Resident(pixels, rows, device, choose(wanted, device, budget))
    except BadImage as error:
        raise not_kept(error) from None
    except (LikewiseError, OSError) as error:
        say(f"pictures are read from their files every time, for they cannot be kept: {error}")
        return None


def not_kept(error: BadImage) -> BadImage:
    return BadImage(f"{error}; --skip-bad leaves such pictures out")


def choose(wanted: int, device: torch.device, budget: int | None) -> Literal["disk", "host", "device"]:
    """Where so many bytes are best kept."""
    if device.type == "cpu" or wanted <= (free_on(device) if budget is None else budget):
        return "device"
    return "host" if wanted <= free() else "disk"


def at_hand(items: Items, rows: Int[np.ndarray, "n"], device: torch.device, side: int | None) -> Resident | None:
    """Pictures that were decoded before, for who looks at them once; None: they were not."""
    try:
        if items.x is None and is_cached(items, side):
            return once(open_pixels(items, side, quiet=True), rows, device)
    except (LikewiseError, OSError):
        pass  # files do as well
    return None


def once(pixels: Pixels | None, rows: Int[np.ndarray, "n"], device: torch.device) -> Resident | None:
    """Decoded pictures for who looks at each of them once, if there are any."""
    return pixels and Resident(pixels, rows, device, "device" if device.type == "cpu" else "disk")


def has_room(length: int) -> bool:
    """Whether so many bytes can be kept on disk twice, or in half of the free memory."""
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    on_disk = os.access(folder, os.W_OK) and 2 * length <= shutil.disk_usage(folder).free
    return on_disk or length <= free()


def free_on(device: torch.device) -> int:
    """Half of the bytes that a device has left."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else free()


def free(processes: int | None = None) -> int:
    """Return half of the unused bytes of memory, divided among the processes that train together.

    Args:
        processes: how many; None: as many as are connected.
    """
    try:
        with open("/proc/meminfo") as facts:
            left = next(1024 * int(line.split()[1]) for line in facts if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # another system
        left = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 0
    return left // 2 // (processes or world()[1])
