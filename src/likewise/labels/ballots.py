"""Votes of workers as columns, the classes of a sample that they concern, and what a posterior says about labels and workers.

With many classes, a sample has columns for the classes that were voted for and for those that its features suggest; the last
columns stand for all other classes. Nothing here holds samples x classes then, nor workers x classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import beta
from torch import Tensor

from likewise.core.types import LikewiseError, Votes
from likewise.labels.candidate_classes import (
    MAX_DENSE_CLASSES,
    CandidateClasses,
    Columns,
    class_of,
    repeats,
    without_drawn,
)

MAX_VOTED_CANDIDATES = 32
"""Maximum number of voted classes of a sample that have columns, the most voted ones; only among many classes."""

MIN_START_WEIGHT = 1e-3
"""Smallest weight of a worker's votes in the posterior that the fit starts from."""

MIN_ENTROPY = 1e-12
"""Smallest entropy that entropies are divided by."""

MIN_UNDECIDED_RATIO = 0.5
"""If the second label is more than this times as likely as the first, the votes and features do not decide."""

ACCURACY_INTERVAL = (0.025, 0.975)
"""Quantiles of the interval of a worker's accuracy."""

COLUMN_BLOCK_ROWS = 4096
"""Number of samples whose columns are joined at a time."""


class Exchanges(NamedTuple):
    """Pairs (true class, label) of the votes for another class than that of a column, each numbered once; 0: no such pair."""

    code: Int[Tensor, "E"]  # true class * C + label, ascending; the first is -1
    number: Int[Tensor, "V W"]  # of every vote and column; 0: the class of the vote, or several classes

    def find(self, code: Int[Tensor, "m"]) -> Int[Tensor, "m"]:
        """Return the numbers of some pairs; 0: it does not occur."""
        place = torch.searchsorted(self.code, code).clamp_max(len(self.code) - 1)
        return place.where(self.code[place] == code, 0)


@dataclass(frozen=True, eq=False)
class Ballots:
    """Votes as three columns; `pair` numbers the distinct pairs of worker and label. A worker of -1 is not known.

    A table of samples has one column for every class, or the columns of `columns`, W in number, the voted classes first.
    """

    row: Int[Tensor, "V"]
    worker: Int[Tensor, "V"]
    label: Int[Tensor, "V"]
    samples: int
    workers: int
    classes: int
    pair: Int[Tensor, "V"]  # number of the pair of worker and label
    pair_worker: Int[Tensor, "P"]
    pair_label: Int[Tensor, "P"]
    slot: Int[Tensor, "V"]  # column of the label of every vote; -1: it has none
    columns: Columns | None = None  # of all samples; None: column c is class c

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.classes if self.columns is None else self.columns.label.shape[1]

    @cached_property
    def counts(self) -> Float[Tensor, "N W"]:
        """Number of votes of every sample for the class of every column."""
        found = torch.zeros(self.samples * self.width, dtype=torch.float64, device=self.row.device)
        kept = self.slot >= 0
        at = self.row[kept] * self.width + self.slot[kept]
        return found.index_add_(0, at, found.new_ones(len(at))).view(self.samples, self.width)

    @cached_property
    def size(self) -> Int[Tensor, "N"]:
        """Number of votes of every sample."""
        return torch.bincount(self.row, minlength=self.samples)

    @cached_property
    def same(self) -> Int[Tensor, "V"]:
        """Number of votes about the sample of every vote that are for the same class, itself included."""
        at, count = (self.row * self.classes + self.label).unique(return_inverse=True, return_counts=True)[1:]
        return count[at]

    @cached_property
    def exchanges(self) -> Exchanges:
        """Pairs of true class and label that the votes and the columns of their samples have."""
        columns = self.columns
        assert columns is not None
        single = columns.size == 0
        code = columns.label[self.row] * self.classes + self.label[:, None]
        code = code.where(single[self.row] & (columns.label[self.row] != self.label[:, None]), -1)
        found = torch.cat([code.new_full((1,), -1), code.flatten()]).unique()
        return Exchanges(found, torch.searchsorted(found, code).int())

    def of_label(self, table: Float[Tensor, "N W"]) -> Float[Tensor, "V"]:
        """Return the value of every vote's class in the row of its sample; 0 if the class has no column."""
        return table[self.row, self.slot].where(self.slot >= 0, 0)

    def decided(self, q: Float[Tensor, "N W"]) -> Decided:
        """Return the labels by a posterior; see `decide`."""
        return decide(q, self.counts, self.columns)

    def with_candidates(self, label: Int[Tensor, "N K"], drawn: int) -> Ballots:
        """Return the votes with more columns: candidate classes of every sample, -1 for none, the last ones drawn."""
        assert self.columns is not None
        voted = self.columns.label[:, :-1].masked_fill(self.columns.size[:, :-1].isinf(), -1)
        rows = torch.arange(self.samples, device=label.device)
        joined = torch.cat([voted, label.to(voted)], 1)
        found = [one.masked_fill(repeats(one), -1) for one in joined.split(COLUMN_BLOCK_ROWS)]
        chosen = CandidateClasses(torch.cat(found), joined[:, :0], self.classes, drawn)
        return replace(self, columns=chosen.columns(rows))


def cast_ballots(
    row: Int[Tensor, "V"], worker: Int[Tensor, "V"], label: Int[Tensor, "V"], samples: int, workers: int, classes: int,
    dense: bool | None = None,
) -> Ballots:  # fmt: skip
    """Return the votes with their pairs numbered; raise unless all numbers are in range and every sample has a vote.

    Args:
        dense: whether a sample has a column for every class; None: up to `MAX_DENSE_CLASSES` classes.
    """
    for name, column, least, end in (
        ("row", row, 0, samples),
        ("worker", worker, -1, workers),
        ("label", label, 0, classes),
    ):
        if len(column) and not least <= int(column.min()) <= int(column.max()) < end:
            raise LikewiseError(
                f"votes: {name} must lie between {least} and {end - 1}, got {int(column.min())} to {int(column.max())}"
            )
    without = (torch.bincount(row, minlength=samples) == 0).nonzero()[:, 0]
    if len(without):
        raise LikewiseError(
            f"votes: every sample must have a vote, but {len(without)} of {samples} have none (first: row "
            f"{int(without[0])}); leave them out, or add their given label as a vote"
        )
    key, pair = ((worker + 1) * classes + label).unique(return_inverse=True)
    of_worker = key.div(classes, rounding_mode="floor") - 1
    dense = classes <= MAX_DENSE_CLASSES if dense is None else dense
    columns, slot = (None, label) if dense else voted_columns(row, label, samples, classes)
    return Ballots(row, worker, label, samples, workers, classes, pair, of_worker, key % classes, slot, columns)


def ballots_of(votes: Votes, samples: int, classes: int) -> Ballots:
    """Return the votes about samples 0 to `samples` - 1, as tensors."""
    row, worker, label = (torch.as_tensor(column).long() for column in (votes.row, votes.worker, votes.label))
    return cast_ballots(row, worker, label, samples, len(votes.worker_name), classes)


def voted_columns(
    row: Int[Tensor, "V"], label: Int[Tensor, "V"], samples: int, classes: int
) -> tuple[Columns, Int[Tensor, "V"]]:
    """Return a column for every voted class of a sample and a last one for all other classes, and the column of every vote."""
    code, at, count = (row * classes + label).unique(return_inverse=True, return_counts=True)
    order = (-count).argsort(stable=True)
    order = order[(code[order] // classes).argsort(stable=True)]  # by sample, the most voted class first
    of_row = code[order] // classes
    number = torch.bincount(of_row, minlength=samples)
    place = torch.arange(len(order), device=row.device) - (number.cumsum(0) - number)[of_row]
    width = min(int(number.max()), MAX_VOTED_CANDIDATES)
    kept = place < width
    found = torch.full((samples, width + 1), -1, device=row.device)
    found[of_row[kept], place[kept]] = code[order[kept]] % classes
    slot = torch.empty_like(order).index_copy_(0, order, place.where(kept, -1))[at]
    size = torch.where(found >= 0, 0.0, -torch.inf)
    size[:, -1] = torch.log((classes - (found >= 0).sum(1)).float())
    return Columns(found.clamp_min(0), size, torch.zeros_like(found[:, :1])), slot


def shares_of_votes(votes: Ballots) -> Float[Tensor, "N W"]:
    """Return the share of a sample's votes for every class; a worker counts by the entropy of their votes.

    Formula: the weight of a worker is H(shares of the labels in the worker's votes) / largest H, at least `MIN_START_WEIGHT`. One
        label for all samples is no evidence about them. Workers who are not known count as one.
    """
    zero = torch.zeros(votes.workers + 1, dtype=torch.float64, device=votes.row.device)
    count = torch.bincount(votes.pair, minlength=len(votes.pair_label)).double()
    total = zero.index_add(0, votes.pair_worker + 1, count)  # the first: workers who are not known
    share = count / total[votes.pair_worker + 1]
    entropy = zero.index_add(0, votes.pair_worker + 1, torch.special.entr(share))
    weight = (entropy / entropy.max().clamp_min(MIN_ENTROPY)).clamp_min(MIN_START_WEIGHT)
    kept = votes.slot >= 0
    found = zero.new_zeros(votes.samples, votes.width)
    found.index_put_((votes.row[kept], votes.slot[kept]), weight[votes.worker[kept] + 1], accumulate=True)
    return found / found.sum(1, keepdim=True)


def sums_by_class(q: Float[Tensor, "N W"], columns: Columns | None, classes: int) -> Float[Tensor, "C"]:
    """Return the sum of the probabilities of every class; columns of several classes are left out."""
    if columns is None:
        return q.sum(0)
    return q.new_zeros(classes).index_add_(0, columns.label.flatten(), without_drawn(q, columns).flatten())


def column_prior(frequency: Float[Tensor, "C"], columns: Columns | None) -> Float[Tensor, "*n W"]:
    """Return the log probability of every column; columns of several classes share the rest equally.

    Args:
        frequency: log frequency of every class.
    """
    if columns is None:
        return frequency
    single, drawn = columns.size == 0, columns.is_drawn
    known = frequency.exp()[columns.label] * single
    rest = (1 - known.sum(1, keepdim=True)).clamp_min(MIN_ENTROPY) / drawn.sum(1, keepdim=True).clamp_min(1)
    return torch.where(single, known, rest * drawn).log()


def own_probability(q: Float[Tensor, "n W"], y: Int[Tensor, "n"], columns: Columns | None) -> Float[Tensor, "n"]:
    """Return the probability of one class of every sample; a class without a column has an equal share of the rest."""
    if columns is None:
        return q.gather(1, y[:, None])[:, 0]
    single = (columns.label == y[:, None]) & (columns.size == 0)
    rest = (q * columns.is_drawn).sum(1) / (columns.size.double().exp() * columns.is_drawn).sum(1).clamp_min(1)
    return torch.where(single.any(1), (q * single).sum(1), rest)


def with_given(
    q: Float[Tensor, "n W"], y: Int[Tensor, "n"], columns: Columns | None
) -> tuple[Float[Tensor, "n J"], Int[Tensor, "n J"] | None]:
    """Return probabilities of single classes that include the class y of every sample, and these classes; None: all in order.

    Columns of several classes have the probability 0. Of candidates, class y is the first column.
    """
    if columns is None:
        return q, None
    own = own_probability(q, y, columns)
    others = without_drawn(q, columns).masked_fill(columns.label == y[:, None], 0)
    return torch.cat([own[:, None], others], 1), torch.cat([y[:, None], columns.label], 1)


class Decided(NamedTuple):
    """Label of every sample by its posterior, the probability that it is wrong, and whether the evidence decides."""

    label: Int[Tensor, "N"]
    wrong: Float[Tensor, "N"]
    undecided: Bool[Tensor, "N"]


def decide(q: Float[Tensor, "N W"], count: Float[Tensor, "N W"], columns: Columns | None = None) -> Decided:
    """Return the most probable labels; of equal ones the one with more votes, then the first."""
    q = without_drawn(q, columns)
    top = q.amax(1, keepdim=True)
    tied = q >= top * (1 - 1e-9)
    place = torch.where(tied, count + 1, 0).argmax(1, keepdim=True)
    second = q.scatter(1, place, 0).amax(1)
    wrong = (1 - q.gather(1, place)[:, 0]).clamp(0, 1)
    return Decided(class_of(place, columns)[:, 0], wrong, second > MIN_UNDECIDED_RATIO * top[:, 0])


class WorkerQuality(NamedTuple):
    """Number of votes of each worker, the share that is right with its 95 % interval, and the share of differing votes."""

    votes: Int[Tensor, "U"]
    accuracy: Float[Tensor, "U"]
    low: Float[Tensor, "U"]
    high: Float[Tensor, "U"]
    disagreement: Float[Tensor, "U"]  # share of the other votes about the same samples that differ; NaN: there are none
    confused_from: Int[Tensor, "U"]  # true class of the most frequent wrong votes; -1: none
    confused_to: Int[Tensor, "U"]
    confused: Float[Tensor, "U"]  # estimated number of these votes


def worker_quality(votes: Ballots, q: Float[Tensor, "N W"]) -> WorkerQuality:
    """Return the quality of every worker.

    Formula: accuracy p = (sum of q of the votes + 1/2) / (n + 1); the interval is that of Beta(m p, m (1 - p)), m = n + 1 reduced
        by the uncertainty of the labels. Only the worker's own votes count: an interval that is shrunk to all workers is too
        narrow if their accuracy is estimated too.
    """
    known = votes.worker >= 0
    right = votes.of_label(q)
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
    alike, compared = (
        zero.index_add(0, votes.worker[known], (v[known] - 1).to(zero)) for v in (votes.same, votes.size[votes.row])
    )
    disagreement = (1 - alike / compared).where(compared > 0, torch.nan)
    return WorkerQuality(count.long(), p, low.to(p), high.to(p), disagreement, *most_confused(votes, q))


def most_confused(
    votes: Ballots, q: Float[Tensor, "N W"]
) -> tuple[Int[Tensor, "U"], Int[Tensor, "U"], Float[Tensor, "U"]]:
    """Return the most frequent wrong votes of every worker: true class, vote, and their estimated number."""
    pair, true, count = wrong_votes(votes, q)
    worker, label = votes.pair_worker[pair], votes.pair_label[pair]
    best = count.new_zeros(votes.workers).scatter_reduce(0, worker, count, "amax")
    chosen = (count == best[worker]).nonzero()[:, 0]
    source, target = torch.full((2, votes.workers), -1, device=q.device)
    for at in chosen.flip(0).tolist():  # of equal ones, the first is written last
        source[worker[at]], target[worker[at]] = true[at], label[at]
    return source, target, best


def wrong_votes(
    votes: Ballots, q: Float[Tensor, "N W"], least: float = 0.0
) -> tuple[Int[Tensor, "M"], Int[Tensor, "M"], Float[Tensor, "M"]]:
    """Return the wrong votes of known workers: pair of worker and label, true class, and their estimated number.

    Args:
        least: only numbers above 0 that are at least this.
    """
    if votes.columns is None:
        table = q.new_zeros(len(votes.pair_label), votes.classes).index_add_(0, votes.pair, q[votes.row])
        pair, true = (table > 0).nonzero(as_tuple=True)
        count = table[pair, true]
    else:
        row, column = (without_drawn(q, votes.columns)[votes.row] > 0).nonzero(as_tuple=True)  # of every vote
        code = votes.pair[row] * votes.classes + votes.columns.label[votes.row[row], column]
        code, at = code.unique(return_inverse=True)
        count = q.new_zeros(len(code)).index_add_(0, at, q[votes.row[row], column])
        pair, true = code // votes.classes, code % votes.classes
    kept = (votes.pair_worker[pair] >= 0) & (true != votes.pair_label[pair]) & (count > 0) & (count >= least)
    return pair[kept], true[kept], count[kept]
