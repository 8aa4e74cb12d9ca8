"""A ranking that does not change with the labels: scores of the same neighbours under other labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from likewise.core.retrieval.integer_scores import Exclusions
from likewise.core.retrieval.relevant_rows import count_relevant
from likewise.core.types import Retrieval
from likewise.score.metrics import metric


@dataclass(frozen=True, eq=False)
class FixedRanking:
    """The nearest L gallery rows of every query. All numbers are positions among N embedded samples.

    `group`: gallery rows of the query's group (0 or more) are not in its ranking. `excluded`: other pairs (query, gallery row)
    that are not in it, as positions.
    """

    query: Int[Tensor, "Q"]
    row: Int[Tensor, "Q L"]  # -1: fewer than L
    in_gallery: Bool[Tensor, "N"]
    group: Int[Tensor, "N"] | None = None
    excluded: Int[Tensor, "M 2"] | None = None

    @property
    def has_exclusions(self) -> bool:
        """Whether rankings lack rows other than the query itself."""
        return (self.group is not None and bool((self.group >= 0).any())) or self.excluded is not None

    def retrieval(self, y: Int[Tensor, "N"]) -> Retrieval:
        """Return the ranking with the relevance that labels give it. R is at most L: no deeper rank is known."""
        match = (y[self.row.clamp_min(0)] == y[self.query, None]) & (self.row >= 0)
        _, at = match.nonzero(as_tuple=True)
        start = torch.cat([torch.zeros(1, dtype=torch.int64), match.sum(1).cumsum(0)])
        relevant = self._count_relevant(y).clamp_max(self.row.shape[1])
        depth = torch.full_like(relevant, self.row.shape[1])
        sim = torch.full(self.row.shape, torch.nan, dtype=torch.float64)
        return Retrieval(self.query, self.row, match, sim, relevant, depth, at + 1, start)

    def means(self, y: Int[Tensor, "N"], names: Sequence[str]) -> np.ndarray:
        """Return the mean of every metric over the queries with a relevant row."""
        found = self.retrieval(y)
        return np.array([float(metric(name)(found).nanmean()) for name in names])

    def _count_relevant(self, y: Int[Tensor, "N"]) -> Int[Tensor, "Q"]:
        gallery = self.in_gallery.nonzero()[:, 0]
        place = torch.full((len(y),), -1).index_put_((gallery,), torch.arange(len(gallery)))
        own, pairs = place[self.query], torch.zeros((0, 2), dtype=torch.int64)
        if self.excluded is not None:
            number = torch.full((len(y),), -1).index_put_((self.query,), torch.arange(len(self.query)))
            both = torch.cat([self.excluded, self.excluded.flip(1)]).unique(dim=0)
            pairs = torch.stack([number[both[:, 0]], place[both[:, 1]]], 1)
            pairs = pairs[(pairs >= 0).all(1) & (both[:, 0] != both[:, 1])]
            pairs = pairs[pairs[:, 0].argsort(stable=True)]
        groups = [] if self.group is None else [(self.group[self.query], self.group[gallery])]
        return count_relevant(y[self.query], y[gallery], Exclusions(len(self.query), own, pairs, groups))
