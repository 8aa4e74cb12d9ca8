"""Batches on the device: pictures through worker processes or from its memory, features by plain indexing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from likewise.data.images import Images
from likewise.types import Batch, Items, LikewiseError


def batches(
    items: Items,
    rows: Iterable[list[int] | None],
    transform,
    *,
    device: torch.device,
    workers: int = 0,
    seed: int = 0,
    first_draw: int = 0,
) -> Iterator[Batch]:
    """A batch for every list of rows, in order.

    Args:
        rows: rows of each batch; may go on for ever. At a None, reading ahead stops: what follows is asked for only when
            the batches before it are used.
        transform: from picture to tensor, see `augment`; or what makes whole batches on the device, see `resident`.
        workers: processes that read pictures; 0 reads in this one.
        seed: of the augmentation, which depends on (seed, row, number of the batch) alone;
            a row that stands twice in a batch is not twice the same.
        first_draw: number of the first batch, for a training that goes on.
    """
    y = torch.as_tensor(items.y)
    if items.x is not None or hasattr(transform, "on_device"):
        features = None if items.x is None else torch.as_tensor(items.x, dtype=torch.float32)
        for number, chosen in enumerate((chosen for chosen in rows if chosen is not None), first_draw):
            row = torch.as_tensor(chosen)
            x = transform.on_device(chosen, seed, number) if features is None else features[row]
            yield _to(Batch(x, y[row], row), device)
        return
    # The loader draws a seed when it starts; not from the generator that training depends on.
    keys = _Keys(rows, first_draw)
    loader = DataLoader(
        Honest(items, transform, seed), batch_sampler=keys, num_workers=workers, collate_fn=_collate,
        generator=torch.Generator(), pin_memory=device.type == "cuda", persistent_workers=workers > 0,
    )  # fmt: skip
    while not keys.ended:
        for found in loader:
            if isinstance(found, LikewiseError):
                raise found
            x, row = found
            yield _to(Batch(x, y[row], row), device)


def in_order(rows: Int[np.ndarray, "n"], size: int) -> list[list[int]]:
    """Rows cut into batches, the last one perhaps shorter."""
    return [rows[i : i + size].tolist() for i in range(0, len(rows), size)]


def choose_workers(workers: int) -> int:
    """-1: half of the cores, at most 8; the network needs the rest."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, cores // 2) if workers < 0 else workers


class Honest(Images):
    """Hands a broken picture's error over as a value: raised in a worker it would arrive wrapped in a traceback."""

    def __getitem__(self, key):
        try:
            return super().__getitem__(key)
        except LikewiseError as error:
            return error


def _collate(samples: list):
    errors = [s for s in samples if isinstance(s, LikewiseError)]
    return errors[0] if errors else default_collate(samples)


class _Keys:
    """Rows with a number that seeds their augmentation: their batch's, and how often they stood in it before.

    Iterating stops at a None and, begun again, goes on behind it.
    """

    def __init__(self, rows: Iterable[list[int] | None], first: int):
        self.rows, self.number, self.ended = iter(rows), first, False

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for chosen in self.rows:
            if chosen is None:
                return
            seen: Counter[int] = Counter()
            keys = []
            for row in chosen:
                keys.append((row, self.number * 2**20 + seen[row]))
                seen[row] += 1
            self.number += 1
            yield keys
        self.ended = True


def send(t: Tensor, device: torch.device) -> Tensor:
    """To the device without waiting for it, which takes pinned memory."""
    if device.type == "cuda" and t.device.type == "cpu":
        t = t.pin_memory()
    return t.to(device, non_blocking=True)


def _to(batch: Batch, device: torch.device) -> Batch:
    return Batch(*(send(t, device) for t in batch))
