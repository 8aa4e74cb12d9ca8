"""Quality of workers by their votes: accuracy with an interval, disagreement with other votes, and confusions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import beta
from torch import Tensor

from likewise.labels.annotators import Ballots

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

    Formula: accuracy p = (sum of q of the votes + 1/2) / (n + 1); the interval is that of Beta(m p, m (1 - p)), m = n + 1 reduced
        by the uncertainty of the labels. Only the worker's own votes count: an interval that is shrunk to all workers is too
        narrow if their accuracy is estimated too.
    """
    known = votes.worker >= 0
    right = q[votes.row, votes.label]
    zero = right.new_zeros(votes.workers)
    count, total, vague = (
        zero.index_add(0, votes.worker[known], value[known])
        for value in (torch.ones_like(right), right, right * (1 - right))
    )
    p = (total + 0.5) / (count + 1)
    spread = p * (1 - p)
    size = count * spread / (spread + vague / count.clamp_min(1)) + 1
    low, high = (
        torch.as_tensor(np.asarray(beta.ppf(at, (p * size).cpu().numpy(), ((1 - p) * size).cpu().numpy())))
        for at in ACCURACY_INTERVAL
    )
    same = votes.counts[votes.row, votes.label] - 1
    others = torch.bincount(votes.row, minlength=votes.samples)[votes.row] - 1
    alike, compared = (zero.index_add(0, votes.worker[known], v[known].to(zero)) for v in (same, others))
    disagreement = (1 - alike / compared).where(compared > 0, torch.nan)
    return WorkerQuality(count.long(), p, low.to(p), high.to(p), disagreement, *most_confused(votes, q))


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
