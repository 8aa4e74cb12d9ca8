"""Draws of true labels from the label posterior, with an error of its calibration that all labels of a draw share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

CANDIDATES_COUNT = 8
"""Number of the most probable classes of a sample that are kept, its given class included."""


class Candidates(NamedTuple):
    """The most probable true classes of every sample and their probabilities, which sum to 1; the given class comes first."""

    label: Int[Tensor, "N K"]
    probability: Float[Tensor, "N K"]

    @property
    def wrong(self) -> Float[Tensor, "N"]:
        """Probability that the given label is wrong."""
        return 1 - self.probability[:, 0]

    @property
    def suggested(self) -> Int[Tensor, "N"]:
        """The most probable other class."""
        best = self.probability[:, 1:].argmax(1, keepdim=True) + 1
        return self.label.gather(1, best)[:, 0]

    def of(self, rows: Int[Tensor, "n"] | Bool[Tensor, "N"]) -> Candidates:
        """Return the candidates of some samples."""
        return Candidates(self.label[rows], self.probability[rows])

    def with_wrong(self, wrong: Float[Tensor, "N"]) -> Candidates:
        """Return the candidates with other probabilities that the given label is wrong; the other classes keep their ratios."""
        rest = self.probability[:, 1:]
        total = rest.sum(1, keepdim=True)
        share = torch.where(total > 0, rest / total.clamp_min(1e-30), 1 / max(1, rest.shape[1]))
        return Candidates(self.label, torch.cat([(1 - wrong)[:, None], wrong[:, None] * share], 1))


def keep_candidates(q: Float[Tensor, "n C"], own: Int[Tensor, "n"], count: int = CANDIDATES_COUNT) -> Candidates:
    """Return the candidates of samples from their posterior over all classes."""
    count = min(count, q.shape[1])
    given = q.gather(1, own[:, None])
    top = q.scatter(1, own[:, None], -1).topk(count - 1, 1)
    kept = torch.cat([given, top.values.clamp_min(0)], 1)
    return Candidates(torch.cat([own[:, None], top.indices], 1), kept / kept.sum(1, keepdim=True).clamp_min(1e-30))


def shift_odds(candidates: Candidates, shift: float) -> Candidates:
    """Return the candidates with the log odds of every wrong label moved by the same amount."""
    wrong = candidates.wrong.clamp(0, 1)
    inner = wrong.clamp(1e-12, 1 - 1e-12)
    moved = torch.sigmoid(torch.logit(inner) + shift)
    return candidates.with_wrong(torch.where((wrong > 0) & (wrong < 1), moved, wrong))


def draw_worlds(candidates: Candidates, worlds: int, spread: float, seed: int = 0) -> Int[Tensor, "S N"]:
    """Return the true labels of every sample in S worlds.

    Formula: each world has one shift of the log odds, the quantile (s + 1/2) / S of N(0, spread^2), in random order.
    """
    random = torch.Generator().manual_seed(seed)
    quantile = (torch.randperm(worlds, generator=random).double() + 0.5) / worlds
    shifts = spread * torch.special.ndtri(quantile)
    found = []
    for shift in shifts.tolist():
        edges = shift_odds(candidates, shift).probability.double().cumsum(1)
        dice = torch.rand(len(edges), 1, generator=random, dtype=torch.float64) * edges[:, -1:]
        place = (edges <= dice).sum(1, keepdim=True).clamp_max(edges.shape[1] - 1)
        found.append(candidates.label.gather(1, place)[:, 0])
    return torch.stack(found)
