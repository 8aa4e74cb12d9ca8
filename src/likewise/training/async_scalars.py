"""The log of a training on an accelerator: numbers are fetched while it works on, and written once they have come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.data.crop_resize import send


@dataclass(frozen=True, eq=False)
class Entry:
    """Numbers on their way, and what is to be done with them."""

    names: tuple[str, ...]
    numbers: Float[Tensor, "n"]  # on the host, not there yet
    came: torch.cuda.Event
    write: Callable[[dict[str, float]], None]


class Journal:
    """Takes scalars of the device, and hands them over in the order they were given, without making the device wait."""

    def __init__(self):
        self.waiting: deque[Entry] = deque()

    def add(self, values: dict[str, Tensor], write: Callable[[dict[str, float]], None]) -> None:
        """`write` is called with the values as numbers, now or by a later call here."""
        device = next(iter(values.values())).device  # that of the step; what parts report may lie on the host
        stacked = torch.stack([send(v.detach(), device).float().mean() for v in values.values()])
        if not stacked.is_cuda:
            write(dict(zip(values, stacked.tolist(), strict=True)))
            return
        host = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=True).copy_(stacked, non_blocking=True)
        came = torch.cuda.Event()
        came.record()
        self.waiting.append(Entry(tuple(values), host, came, write))
        self.settle()

    def settle(self, wait: bool = False) -> None:
        """Write what has come; with `wait`, all there is."""
        while self.waiting and (wait or self.waiting[0].came.query()):
            entry = self.waiting.popleft()
            entry.came.synchronize()
            entry.write(dict(zip(entry.names, entry.numbers.tolist(), strict=True)))
