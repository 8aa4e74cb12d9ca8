"""Linear discriminants of a labelled set; each sample is scored by discriminants fitted without its fold. Bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

SCORE_BLOCK_SIZE = 2**23
"""Maximum number of scores that are computed at a time."""

MAX_STORED_SCORES = 2**26
"""Maximum number of scores (rows x classes) that are stored between calls."""


class Discriminant:
    """Linear discriminants from counts, sums and products of each fold.

    Labels may be soft: one distribution over classes per sample, added a block of rows at a time.
    """

    def __init__(self, x: Float[Tensor, "N F"], fold: Int[Tensor, "N"], folds: int, classes: int):
        self.x, self.fold, self.folds, self.classes = x, fold, folds, classes
        self.count = x.new_zeros(folds, classes)
        self.total = x.new_zeros(folds, classes, x.shape[1])
        self.square = torch.stack([x[fold == k].T @ x[fold == k] for k in range(folds)])
        self.weight = x.new_zeros(folds, x.shape[1], classes)
        self.offset = x.new_zeros(folds, classes)
        self.stored: Tensor | None = None  # scores of all rows, if there are at most MAX_STORED_SCORES

    def blocks(self) -> Iterator[Tensor]:
        """Yield rows in blocks whose scores fit in memory."""
        yield from torch.arange(len(self.x), device=self.x.device).split(max(1, SCORE_BLOCK_SIZE // self.classes))

    def add(self, rows: Int[Tensor, "b"], q: Float[Tensor, "b C"]) -> None:
        """Add rows with their class probabilities `q` to the statistics of their folds."""
        for k in range(self.folds):
            mine = self.fold[rows] == k
            self.count[k] += q[mine].sum(0)
            self.total[k] += q[mine].T @ self.x[rows[mine]]

    def fit(self, shrink: float) -> None:
        """Fit the weights and offsets of every fold, on the samples outside it that were added since the last fit."""
        weights, offsets = [], []
        for k in range(self.folds):
            count = self.count.sum(0) - self.count[k]
            total = self.total.sum(0) - self.total[k]
            n = count.sum()
            mean = total.sum(0) / n
            centre = total / count.clamp_min(1e-6)[:, None] - mean
            centre = (
                centre * (count > 1e-3)[:, None]
            )  # a class without samples has its centre at the mean, and a score of 0
            spread = (self.square.sum(0) - self.square[k]) / n - torch.outer(mean, mean)
            within = spread - centre.T @ (centre * (count / n)[:, None])
            size = within.diagonal().mean().clamp_min(1e-12)
            within = (1 - shrink) * within + shrink * size * torch.eye(len(within)).to(within)
            device = "cpu" if self.x.device.type == "mps" else self.x.device  # MPS has no float64
            both = (t.to(device, torch.float64) for t in (within, centre.T))
            weight = torch.linalg.solve(*both).to(self.x)
            weights.append(weight)
            offsets.append(-(0.5 * centre.T + mean[:, None]).mul(weight).sum(0))
        self.weight, self.offset, self.stored = torch.stack(weights), torch.stack(offsets), None
        self.count.zero_()
        self.total.zero_()
        if len(self.x) * self.classes <= MAX_STORED_SCORES:
            self.stored = torch.cat([self.scores(rows) for rows in self.blocks()])

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        """Return the scores of every class for these rows, by the discriminants fitted without their fold."""
        if self.stored is not None:
            return self.stored[rows]
        found = self.x.new_empty(len(rows), self.classes)
        for k in range(self.folds):
            mine = self.fold[rows] == k
            found[mine] = self.x[rows[mine]] @ self.weight[k] + self.offset[k]
        return found
