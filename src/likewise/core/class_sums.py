"""Sums of embeddings, class by class."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK_ROWS = 8192
"""Number of rows that are converted to the dtype of the sums at a time."""


def class_sums(
    z: Float[Tensor, "N D"], y: Int[Tensor, "N"], classes: int, dtype: torch.dtype | None = None
) -> Float[Tensor, "C D"]:
    """Return the sum of the embeddings of every class; zeros for a class without samples.

    Args:
        dtype: dtype of the sums; None: that of the embeddings.
    """
    total = torch.zeros(classes, z.shape[1], dtype=dtype or z.dtype, device=z.device)
    for rows in torch.arange(len(z), device=z.device).split(CHUNK_ROWS):
        total.index_add_(0, y[rows], z[rows].to(total.dtype))
    return total
