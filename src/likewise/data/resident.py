"""Pictures held in the memory of the device: decoded once, then cut, resized and mirrored there, a whole batch at a time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.transforms.v2 import functional

from likewise.data.augment import Kind, check, train_transform
from likewise.data.batches import Honest, choose_workers, send
from likewise.progress import bar
from likewise.types import Items, LikewiseError

TRIES, RATIO = 10, (3 / 4, 4 / 3)
"""Of random boxes, as torchvision has them: how often one is drawn until it fits, and its width by height."""

PIXELS = 2**22
"""Pixels worked on at once, which bounds memory."""

BITS, HALF = 22, 11
"""Of Pillow's weights, which are whole numbers and add up to 2**BITS, and of half a weight."""


@dataclass(frozen=True)
class OnDevice:
    """What stands where a transform would: `on_device(rows, seed, number)` makes the pictures of batch `number`."""

    on_device: Callable[[list[int], int, int], UInt8[Tensor, "B 3 s s"]]


class Resident:
    """Pictures of some rows of a data set, in the memory of the device. For sets that fit; three bytes a pixel.

    Batches then need no worker processes. Resizing is Pillow's, along rows and then along columns, as matrix products of whole
    numbers: the same on every device. Pictures are those that `augment` makes of files, up to a grey level where Pillow (from 13
    on) takes columns first.

    Args:
        rows: whose pictures are held.
        side: pictures with a longer short side are shrunk to this one; None: all stay as they are.
        workers: processes that decode; -1: half of the cores.
    """

    def __init__(
        self,
        items: Items,
        rows: Int[np.ndarray, "n"],
        device: torch.device,
        side: int | None = None,
        workers: int = -1,
        quiet: bool = False,
    ):
        if items.x is not None:
            raise LikewiseError(
                f"Resident: the data must be pictures, got {items.name}, which holds features; leave it out"
            )
        if side is not None:
            check(side, "none")
        self.items, self.device = items, device
        rows = np.unique(rows)
        self._place = np.full(len(items), -1)
        self._place[rows] = np.arange(len(rows))
        loader = DataLoader(
            Honest(items, partial(_shrink, side=side)), 32, sampler=rows.tolist(), collate_fn=_pack,
            num_workers=choose_workers(workers) if len(rows) > 256 else 0, generator=torch.Generator(),
        )  # fmt: skip
        chunks, sizes = deque(), []
        with bar("load", len(rows), quiet=quiet) as progress:
            for found in loader:
                if isinstance(found, LikewiseError):
                    raise found
                chunks.append(found[0].clone())  # out of the workers' shared memory, which is small
                sizes += found[1]
                progress.advance(len(found[1]))
        self._size = np.array(sizes, np.int64).reshape(-1, 2)
        self._start = np.cumsum(self._size.prod(1)) - self._size.prod(1)
        self._pixels = self._held(chunks)

    def _held(self, chunks: deque[Tensor]) -> UInt8[Tensor, "P 3"]:
        """All pixels on the device. A chunk is let go once it is copied, so that memory holds them about once."""
        total, at = sum(map(len, chunks)), 0
        try:
            pixels = torch.empty(total, 3, dtype=torch.uint8, device=self.device)
        except RuntimeError:
            raise LikewiseError(
                f"Resident: the pictures of {self.items.name} must fit on {self.device}, and take {3 * total / 1e9:.1f} GB; "
                "give a smaller side, or read them from files"
            ) from None
        while chunks:
            chunk = chunks.popleft()
            pixels[at : at + len(chunk)] = chunk
            at += len(chunk)
        return pixels

    def training(self, size: int, kind: Kind = "crop", scale: tuple[float, float] = (0.08, 1.0)) -> OnDevice:
        """Chance as in `augment.train_transform`; it depends on (seed, number of the batch) and the place in the batch alone."""
        if kind == "affine":
            raise LikewiseError("Resident: kind 'affine' is for pictures read from files; use 'crop' or 'none'")
        train_transform(size, kind, scale=scale)  # knows what is wrong with them
        if kind == "none":
            return self.evaluation(size, "none")

        def on_device(rows: list[int], seed: int, number: int) -> Tensor:
            chance = np.random.default_rng((seed, number)).random((len(rows), 2 * TRIES + 3))
            boxes = random_boxes(self._size[self._held_at(rows)], scale, chance[:, 1:])
            return self.crop(rows, boxes, chance[:, 0] < 0.5, size)

        return OnDevice(on_device)

    def evaluation(self, size: int, kind: Kind = "crop") -> OnDevice:
        """The same picture every time, as `augment.eval_transform` makes it."""
        check(size, kind)

        def on_device(rows: list[int], seed: int, number: int) -> Tensor:
            whole = self._size[self._held_at(rows)]
            grown = np.full_like(whole, size)
            if kind == "crop":  # the short side exactly, the long one rounded down
                grown = whole * round(size * 256 / 224) // whole.min(1, keepdims=True)
            boxes = np.concatenate([np.zeros_like(whole), whole], 1)
            return self._cut(rows, boxes, np.zeros(len(rows), bool), size, grown)

        return OnDevice(on_device)

    def crop(
        self, rows: list[int], boxes: Int[np.ndarray, "B 4"], flip: Bool[np.ndarray, "B"], size: int
    ) -> UInt8[Tensor, "B 3 s s"]:
        """Cut a box out of each picture, then resize it to a square. Pixels outside of the box play no part.

        Args:
            boxes: top, left, height, width in pixels.
            flip: which ones are mirrored.
        """
        corner, extent = boxes[:, :2], boxes[:, 2:]
        wrong = ((corner < 0) | (extent < 1) | (corner + extent > self._size[self._held_at(rows)])).any(1)
        if wrong.any():
            raise LikewiseError(
                f"Resident: a box (top, left, height, width) must lie inside its picture, got {boxes[wrong][0].tolist()} "
                f"for row {rows[wrong.argmax()]}"
            )
        return self._cut(rows, boxes, flip, size, np.full_like(extent, size))

    def _held_at(self, rows: list[int]) -> Int[np.ndarray, "B"]:
        place = self._place[rows]
        if (place < 0).any():
            raise LikewiseError(
                f"Resident: only rows that were loaded can be asked for, got row {rows[int((place < 0).argmax())]} of "
                f"{self.items.name}; load it too"
            )
        return place

    def _cut(self, rows: list[int], boxes: np.ndarray, flip: np.ndarray, size: int, grown: np.ndarray) -> Tensor:
        """Boxes resized to `grown` (height, width), of which the middle square is kept."""
        place = self._held_at(rows)
        first = np.rint((grown - size) / 2).astype(np.int64)
        columns = (self._start[place], self._size[place, 1], boxes, grown, first, flip)
        plan = np.column_stack(columns).astype(np.int64)
        pieces = math.ceil(len(plan) * int(boxes[:, 2:].max(0).prod()) / PIXELS)
        done = [self._resize(piece, size) for piece in np.array_split(plan, min(pieces, len(plan)))]
        return torch.cat(done)

    def _resize(self, plan: Int[np.ndarray, "b 11"], size: int) -> UInt8[Tensor, "b 3 s s"]:
        """Gather the boxes, padded to the largest, and resize them. Shapes are known here, so nothing waits for the device."""
        count, (high, wide) = len(plan), plan[:, 4:6].max(0).tolist()
        there = send(torch.from_numpy(plan), self.device)
        start, stride, top, left = there[:, :4, None].unbind(1)
        h, w, grown_h, grown_w, first_h, first_w, flip = there[:, 4:].unbind(1)
        down = top + torch.arange(high, device=self.device).minimum(h[:, None] - 1)
        right = left + torch.arange(wide, device=self.device).minimum(w[:, None] - 1)
        pixel = (start + down * stride)[:, :, None] + right[:, None, :]
        x = self._pixels.index_select(0, pixel.flatten()).view(count, high, wide, 3).permute(0, 3, 1, 2).float()
        x = resize_rows(x, triangle(w, grown_w, first_w, size, wide, flip)).mT
        x = resize_rows(x, triangle(h, grown_h, first_h, size, high)).mT
        return x.to(torch.uint8).contiguous()


def resize_rows(x: Float[Tensor, "b 3 m l"], weight: Int[Tensor, "b s l"]) -> Float[Tensor, "b 3 m s"]:
    """Weighted means along the last axis, rounded to whole numbers.

    Weights go in as two halves, whose sums of products with up to 28 pixels float32 holds exactly, in whatever order (tensor
    cores too): enough to shrink 13 times.
    """
    flat, unit = x.flatten(1, 2), 2**HALF
    with torch.autocast(x.device.type, enabled=False):
        lower = torch.baddbmm(x.new_full((1, 1, 1), unit / 2), flat, (weight & (unit - 1)).float().mT / unit).floor_()
        mean = torch.baddbmm(lower, flat, (weight >> HALF).float().mT / unit, beta=1 / unit).floor_()
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


def random_boxes(
    whole: Int[np.ndarray, "B 2"], scale: tuple[float, float], chance: Float[np.ndarray, "B c"]
) -> Int[np.ndarray, "B 4"]:
    """Boxes as torchvision's RandomResizedCrop draws them, of a random area and shape; where none of the tries fits, the
    middle of the picture.

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
    found = fits.any(1, keepdims=True)
    extent = np.where(found, drawn, middle)
    corner = np.where(found, np.floor(corner * (whole - extent + 1)), (whole - extent) // 2)
    return np.concatenate([corner.astype(np.int64), extent], 1)


def _shrink(image: Image.Image, side: int | None) -> Tensor:
    if side is not None and min(image.size) > side:
        image = functional.resize(image, [side], antialias=True)
    return torch.from_numpy(np.array(image))


def _pack(samples: list) -> tuple[Tensor, list[tuple[int, int]]] | LikewiseError:
    errors = [s for s in samples if isinstance(s, LikewiseError)]
    if errors:
        return errors[0]
    pictures = [x for x, _ in samples]
    return torch.cat([x.flatten(0, 1) for x in pictures]), [tuple(x.shape[:2]) for x in pictures]
