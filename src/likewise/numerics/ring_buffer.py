"""A memory of the last so many samples: first in, first out, in a ring of fixed size."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


def remember(
    next_row: Int[Tensor, ""],
    filled: Int[Tensor, ""],
    kept: Bool[Tensor, "B"],
    *what: tuple[Shaped[Tensor, "M ..."], Tensor],
) -> None:
    """Write the kept samples of a batch over the oldest rows, in their order, without looking at how many they are.

    Args:
        next_row: where the next sample goes; moved on.
        filled: how many rows hold a sample; raised.
        kept: which samples of the batch to write. Of more than fit, the last ones stay.
        what: each memory, and what the batch brings for it.
    """
    size = len(what[0][0])
    order = kept.to(torch.uint8).argsort(stable=True)[-size:]  # those to write come last
    new = kept.sum().clamp_max(size)
    ahead = torch.arange(len(order), device=order.device) - len(order) + new
    rows = (next_row + ahead) % size  # below 0 ahead: rows that are written back as they are
    for memory, batch in what:
        old = memory[rows]
        write = (ahead >= 0).view(-1, *[1] * (old.dim() - 1))
        memory.index_copy_(0, rows, batch[order].to(memory).where(write, old))
    next_row.copy_((next_row + new) % size)
    filled.copy_((filled + new).clamp_max(size))
