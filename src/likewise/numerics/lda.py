"""Linear discriminants of a labelled set, each sample scored by those fitted without its own fold. Bounded in memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

AT_ONCE, MAX_STORED_SCORES = 2**23, 2**26
"""Scores worked on at a time, and up to how many they are kept for the next time."""


class Discriminant:
    """What linear discriminants need to know of a set: counts, sums and products, fold by fold.

    Labels may be soft: one distribution over classes a sample, handed over a block of rows at a time.
    """

    def __init__(self, x: Float[Tensor, "N F"], fold: Int[Tensor, "N"], folds: int, classes: int):
        self.x, self.fold, self.folds, self.classes = x, fold, folds, classes
        self.count = x.new_zeros(folds, classes)
        self.total = x.new_zeros(folds, classes, x.shape[1])
        self.square = torch.stack([x[fold == k].T @ x[fold == k] for k in range(folds)])
        self.weight = x.new_zeros(folds, x.shape[1], classes)
        self.offset = x.new_zeros(folds, classes)
        self.known: Tensor | None = None  # scores of all rows, where they are few

    def blocks(self) -> Iterator[Tensor]:
        """Rows in blocks whose scores fit in memory."""
        yield from torch.arange(len(self.x), device=self.x.device).split(max(1, AT_ONCE // self.classes))

    def add(self, rows: Int[Tensor, "b"], q: Float[Tensor, "b C"]) -> None:
        """These rows belong to these classes, for such a share each."""
        for k in range(self.folds):
            mine = self.fold[rows] == k
            self.count[k] += q[mine].sum(0)
            self.total[k] += q[mine].T @ self.x[rows[mine]]

    def fit(self, shrink: float) -> None:
        """Weights and offsets of every fold's discriminants: of the samples outside it that were added since the last time."""
        weights, offsets = [], []
        for k in range(self.folds):
            count = self.count.sum(0) - self.count[k]
            total = self.total.sum(0) - self.total[k]
            n = count.sum()
            mean = total.sum(0) / n
            centre = total / count.clamp_min(1e-6)[:, None] - mean
            centre = centre * (count > 1e-3)[:, None]  # a class nobody is left of stands at the mean and wins nothing
            spread = (self.square.sum(0) - self.square[k]) / n - torch.outer(mean, mean)
            within = spread - centre.T @ (centre * (count / n)[:, None])
            size = within.diagonal().mean().clamp_min(1e-12)
            within = (1 - shrink) * within + shrink * size * torch.eye(len(within)).to(within)
            place = "cpu" if self.x.device.type == "mps" else self.x.device  # which has no float64
            both = (t.to(place, torch.float64) for t in (within, centre.T))
            weight = torch.linalg.solve(*both).to(self.x)
            weights.append(weight)
            offsets.append(-(0.5 * centre.T + mean[:, None]).mul(weight).sum(0))
        self.weight, self.offset, self.known = torch.stack(weights), torch.stack(offsets), None
        self.count.zero_()
        self.total.zero_()
        if len(self.x) * self.classes <= MAX_STORED_SCORES:
            self.known = torch.cat([self.scores(rows) for rows in self.blocks()])

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        """How well every class fits each of these rows, by the discriminants that never saw it."""
        if self.known is not None:
            return self.known[rows]
        found = self.x.new_empty(len(rows), self.classes)
        for k in range(self.folds):
            mine = self.fold[rows] == k
            found[mine] = self.x[rows[mine]] @ self.weight[k] + self.offset[k]
        return found
