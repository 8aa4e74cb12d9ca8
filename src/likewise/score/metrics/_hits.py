"""Operations on the ranks of the hits of a `Retrieval`, from which the metrics per query are computed."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from likewise.core.types import LikewiseError, Retrieval

Depth = int | Literal["R", "C"] | None
"""The last rank that counts: an integer, R, C = R + 1, or None: all hits count."""


def query_of_hit(found: Retrieval) -> Int[Tensor, "H"]:
    """Return the query of each hit."""
    queries = torch.arange(len(found.relevant), device=found.start.device)
    return queries.repeat_interleave(found.start.diff())


def hit_number(found: Retrieval) -> Int[Tensor, "H"]:
    """Return the number of each hit among the hits of its query, from 1."""
    return torch.arange(1, len(found.hit_rank) + 1, device=found.start.device) - found.start[query_of_hit(found)]


def sum_over_hits(found: Retrieval, value: Shaped[Tensor, "H"]) -> Float[Tensor, "Q"]:
    """Return the sum of a value over the hits of each query, in float64."""
    total = torch.zeros(len(found.relevant), dtype=torch.float64, device=value.device)
    return total.index_add_(0, query_of_hit(found), value.double())


def within_depth(found: Retrieval, k: Depth) -> Bool[Tensor, "H"]:
    """Return the mask of the hits among the first k results. Raise if a ranking is not that deep."""
    complete = found.start.diff() == found.relevant
    if k is None:
        if not complete.all():
            raise LikewiseError(
                f"metrics: the ranks of all relevant results are needed, but {int((~complete).sum())} of "
                f"{len(complete)} rankings end before the last one; rank with all_hits=True, or use a metric with @k"
            )
        return torch.ones_like(found.hit_rank, dtype=torch.bool)
    last = torch.full_like(found.relevant, k) if isinstance(k, int) else found.relevant + (k == "C")
    short = found.depth < last if isinstance(k, int) else (found.depth < last) & ~complete
    if short.any():
        raise LikewiseError(
            f"metrics: rank {int(last[short].max())} is needed, but the ranking ends at rank "
            f"{int(found.depth[short].min())}; rank deeper (k), or use a metric with a smaller k if the gallery is that small"
        )
    return found.hit_rank <= last[query_of_hit(found)]


def nan_without_relevant(found: Retrieval) -> Float[Tensor, "Q"]:
    """Return NaN for queries without relevant gallery rows, else 0."""
    return torch.zeros_like(found.relevant, dtype=torch.float64).masked_fill(found.relevant == 0, torch.nan)
