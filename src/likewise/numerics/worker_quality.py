"""Quality of workers by their votes: accuracy with an interval, disagreement with other votes, and confusions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import beta
from torch import Tensor

from likewise.numerics.annotators import STRENGTH_GRID, Ballots

ACCURACY_INTERVAL = (0.025, 0.975)
"""Quantiles of the interval of a worker's accuracy."""


class WorkerQuality(NamedTuple):
    """Number of votes of each worker, the share that is right with its 95 % interval, and the share of differing votes."""

    votes: Int[Tensor, "W"]
    accuracy: Float[Tensor, "W"]
    low: Float[Tensor, "W"]
    high: Float[Tensor, "W"]
    disagreement: Float[Tensor, "W"]  # share of the other votes about the same samples that differ; NaN: there are none
    confused_from: Int[Tensor, "W"]  # true class of the most frequent wrong votes; -1: none
    confused_to: Int[Tensor, "W"]
    confused: Float[Tensor, "W"]  # estimated number of these votes


def worker_quality(votes: Ballots, q: Float[Tensor, "N C"]) -> WorkerQuality:
    """Return the quality of every worker.

    Formula: accuracy = (sum of q of the votes + k r) / (n + k), r the accuracy of all workers and k the likeliest strength of
        it; the interval is that of a Beta distribution whose number of votes is reduced by the uncertainty of the labels.
    """
    known = votes.worker >= 0
    right = q[votes.row, votes.label]
    zero = right.new_zeros(votes.workers)
    count, total, vague = (
        zero.index_add(0, votes.worker[known], value[known])
        for value in (torch.ones_like(right), right, right * (1 - right))
    )
    share = float(right.mean())
    strength = likeliest_beta_strength(total, count - total, share)
    p = (total + strength * share) / (count + strength)
    spread = (p * (1 - p)).clamp_min(1e-9)
    effective = count * spread / (spread + vague / count.clamp_min(1))
    a, b = p * (effective + strength), (1 - p) * (effective + strength)
    low, high = (
        torch.as_tensor(np.asarray(beta.ppf(at, a.cpu().clamp_min(1e-6).numpy(), b.cpu().clamp_min(1e-6).numpy())))
        for at in ACCURACY_INTERVAL
    )
    same = votes.counts[votes.row, votes.label] - 1
    others = torch.bincount(votes.row, minlength=votes.samples)[votes.row] - 1
    alike, compared = (zero.index_add(0, votes.worker[known], v[known].to(zero)) for v in (same, others))
    disagreement = (1 - alike / compared).where(compared > 0, torch.nan)
    return WorkerQuality(count.long(), p, low.to(p), high.to(p), disagreement, *most_confused(votes, q))


def likeliest_beta_strength(right: Float[Tensor, "W"], wrong: Float[Tensor, "W"], share: float) -> float:
    """Return how many votes the accuracy of all workers counts as for one worker: the value of highest likelihood."""
    if not len(right):
        return STRENGTH_GRID[-1]
    share = min(max(share, 1e-3), 1 - 1e-3)

    def fit(strength: float) -> float:
        a, b = right.new_tensor(strength * share), right.new_tensor(strength * (1 - share))
        inner = torch.lgamma(right + a) + torch.lgamma(wrong + b) - torch.lgamma(right + wrong + a + b)
        return float((inner + torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)).sum())

    return max(STRENGTH_GRID, key=fit)


def most_confused(
    votes: Ballots, q: Float[Tensor, "N C"]
) -> tuple[Int[Tensor, "W"], Int[Tensor, "W"], Float[Tensor, "W"]]:
    """Return the most frequent wrong votes of every worker: true class, vote, and their estimated number."""
    count = confusion_counts(votes, q).scatter(1, votes.pair_label[:, None], 0)
    most, true = count.max(1)
    named = votes.pair_worker >= 0
    worker, most, true, label = (t[named] for t in (votes.pair_worker, most, true, votes.pair_label))
    best = most.new_zeros(votes.workers).scatter_reduce(0, worker, most, "amax")
    chosen = ((most == best[worker]) & (most > 0)).nonzero()[:, 0]
    source, target = torch.full((2, votes.workers), -1, device=q.device)
    for at in chosen.flip(0).tolist():  # of equal ones, the first is written last
        source[worker[at]], target[worker[at]] = true[at], label[at]
    return source, target, best


def confusion_counts(votes: Ballots, q: Float[Tensor, "N C"]) -> Float[Tensor, "P C"]:
    """Return the estimated number of votes of every pair of worker and label, by true class."""
    return q.new_zeros(len(votes.pair_label), votes.classes).index_add_(0, votes.pair, q[votes.row])
