"""Ring buffer of fixed size for the most recent samples: first in, first out."""

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
    """Write the kept samples of a batch over the oldest rows, in their order, without a device sync.

    Args:
        next_row: row for the next sample; updated in place.
        filled: number of rows with a sample; updated in place.
        kept: which samples of the batch to write. If there are more than rows, the last ones are written.
        what: pairs of a buffer and the values of the batch for it.
    """
    size = len(what[0][0])
    order = kept.to(torch.uint8).argsort(stable=True)[-size:]  # samples to write come last
    new = kept.sum().clamp_max(size)
    ahead = torch.arange(len(order), device=order.device) - len(order) + new
    rows = (next_row + ahead) % size  # ahead < 0: rows are written back unchanged
    for memory, batch in what:
        old = memory[rows]
        write = (ahead >= 0).view(-1, *[1] * (old.dim() - 1))
        memory.index_copy_(0, rows, batch[order].to(memory).where(write, old))
    next_row.copy_((next_row + new) % size)
    filled.copy_((filled + new).clamp_max(size))
