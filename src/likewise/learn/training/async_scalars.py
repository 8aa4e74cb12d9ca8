"""Copy scalars of the log from the device to the host without a device sync."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.data.crop_resize import send


@dataclass(frozen=True, eq=False)
class PendingScalars:
    """Scalars whose copy to the host was started, and the function that receives them."""

    names: tuple[str, ...]
    values: Float[Tensor, "n"]  # pinned host memory; valid once `copied` has happened
    copied: torch.cuda.Event
    write: Callable[[dict[str, float]], None]


class AsyncScalars:
    """Queue of scalars that are copied from the device to the host; callbacks receive them in order, without a device sync."""

    def __init__(self):
        self.pending: deque[PendingScalars] = deque()

    def add(self, values: dict[str, Tensor], write: Callable[[dict[str, float]], None]) -> None:
        """Start copying scalars to the host. `write` gets them as floats: at once on a CPU, else in a later call."""
        device = next(iter(values.values())).device  # the device of the step; scalars of components may be on the host
        stacked = torch.stack([send(v.detach(), device).float().mean() for v in values.values()])
        if not stacked.is_cuda:
            write(dict(zip(values, stacked.tolist(), strict=True)))
            return
        host = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=True).copy_(stacked, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        self.pending.append(PendingScalars(tuple(values), host, copied, write))
        self.flush()

    def flush(self, wait: bool = False) -> None:
        """Call `write` for all scalars whose copy is complete; with `wait`, for all pending scalars."""
        while self.pending and (wait or self.pending[0].copied.query()):
            entry = self.pending.popleft()
            entry.copied.synchronize()
            entry.write(dict(zip(entry.names, entry.values.tolist(), strict=True)))
