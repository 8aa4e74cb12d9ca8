"""Model of the votes of several workers: confusions of each worker, shrunk to those of all, and the posterior of every sample.

A worker has few votes. So a worker's confusions start from those of all workers, moved by one number (how much more often this
worker is right), and single confusions of the worker are added as far as the votes support them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import beta
from torch import Tensor

from likewise.core.types import LikewiseError, Votes

MAX_VOTED_CLASSES = 4096
"""Maximum number of classes: the table of confusions has the square of it."""

STRENGTH_GRID = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 1e4)
"""Numbers of votes that the expected confusions of a class may count as; the likeliest is used."""

SIMILAR_GRID = (0.3, 0.6, 0.9)
"""Parts of the wrong votes that may be expected for the classes that the features suggest; the likeliest, or none, is used."""

STRENGTH_STEPS = (0, 2, 6, 15)
"""Updates in which the strengths are chosen."""

START_STRENGTH_COUNT = 20.0
"""Number of votes that the expected confusions of a class count as in the first step."""

SKILL_PRIOR_WORKERS, SKILL_PRIOR_VARIANCE = 2.0, 0.25
"""Number of workers that the prior of the variance of skills counts as, and the variance (of log odds) that it assumes."""

SKILL_LIMIT = 8.0
"""Largest difference of a worker's log odds from those of all workers."""

MIN_START_WEIGHT = 1e-3
"""Smallest weight of a worker's votes in the posterior that the fit starts from."""

MAX_UPDATES, UPDATE_TOLERANCE = 60, 1e-3
"""Maximum number of updates of the model, and the largest change of a posterior at which they end."""

MIN_PROBABILITY = 1e-12
"""Smallest probability in a logarithm."""

MIN_UNDECIDED_RATIO = 0.5
"""If the second label is more than this times as likely as the first, the votes and features do not decide."""

ACCURACY_INTERVAL = (0.025, 0.975)
"""Quantiles of the interval of a worker's accuracy."""


@dataclass(frozen=True, eq=False)
class Ballots:
    """Votes as three columns; `pair` numbers the distinct pairs of worker and label. A worker of -1 is not known."""

    row: Int[Tensor, "V"]
    worker: Int[Tensor, "V"]
    label: Int[Tensor, "V"]
    samples: int
    workers: int
    classes: int
    pair: Int[Tensor, "V"]  # number of the pair of worker and label
    pair_worker: Int[Tensor, "P"]
    pair_label: Int[Tensor, "P"]

    @property
    def counts(self) -> Float[Tensor, "N C"]:
        """Number of votes of every sample for every class."""
        found = torch.zeros(self.samples * self.classes, dtype=torch.float64, device=self.row.device)
        at = self.row * self.classes + self.label
        return found.index_add_(0, at, found.new_ones(len(at))).view(self.samples, self.classes)


def cast_ballots(
    row: Int[Tensor, "V"], worker: Int[Tensor, "V"], label: Int[Tensor, "V"], samples: int, workers: int, classes: int
) -> Ballots:
    """Return the votes with their pairs numbered; raise unless all numbers are in range and every sample has a vote."""
    if classes > MAX_VOTED_CLASSES:
        raise LikewiseError(
            f"votes: at most {MAX_VOTED_CLASSES:,} classes can be voted on, got {classes:,}; leave out the votes, or "
            "vote on fewer classes"
        )
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
    return Ballots(row, worker, label, samples, workers, classes, pair, of_worker, key % classes)


def ballots_of(votes: Votes, samples: int, classes: int) -> Ballots:
    """Return the votes about samples 0 to `samples` - 1, as tensors."""
    row, worker, label = (torch.as_tensor(column).long() for column in (votes.row, votes.worker, votes.label))
    return cast_ballots(row, worker, label, samples, len(votes.worker_name), classes)


class PooledPrior(NamedTuple):
    """Expected confusions of all workers, and the numbers of votes that they count as in a class."""

    right: float  # share of right votes
    right_strength: float
    wrong: Float[Tensor, "C C"]  # true class, wrong label: its share in the wrong votes
    wrong_strength: float


class WorkerModel(NamedTuple):
    """Fitted confusions: P(vote | true class) of every pair of worker and label, and of a worker who is not known."""

    pooled: Float[Tensor, "C C"]  # true class, vote
    column: Float[Tensor, "P C"]  # P(vote of the pair | true class)
    like: Float[Tensor, "N C"]  # log P(votes of a sample | true class), by confusions fitted without this sample
    skill: Float[Tensor, "W"]  # log odds of being right, minus those of all workers
    spread: float  # standard deviation of the skills
    strength: Float[Tensor, "W"]  # number of votes that the expected confusions of a worker count as
    prior: PooledPrior
    swapped: Bool[Tensor, "C"]  # classes of which most votes seem to be for another class


def fit_workers(
    votes: Ballots, log_prior: Float[Tensor, "N C"] | None = None, start: Float[Tensor, "N C"] | None = None
) -> tuple[WorkerModel, Float[Tensor, "N C"], Float[Tensor, "C"]]:
    """Return the confusions of the workers, the posterior of every sample, and the log frequencies of the classes.

    Formula: q_ic ~ prior_ic prod_v P_wc(l_v), the posterior of sample i with votes l_v of workers w;
        P_wc(l) = (n_wcl + k m_wcl) / (n_wc + k), n the votes weighted with q, k the likeliest strength for w;
        m_wcc = sigmoid(logit pooled_cc + skill_w), m_wcl = (1 - m_wcc) pooled_cl / (1 - pooled_cc);
        pooled_c is shrunk to the same share of right votes in all classes, and to wrong ones for the classes that the features
        of class c suggest, or for all classes equally; skill_w maximises the likelihood of right and wrong votes times
        Normal(0, spread^2); repeated until q settles.
        In the posterior of a sample, its own votes are left out of n and pooled: they would confirm themselves.
        It starts from `shares_of_votes`, which also decides between solutions that differ by exchanged classes.

    Args:
        log_prior: log P(class) of every sample, from other evidence; None: the frequencies of the classes, which are fitted.
        start: posterior to start from; None: the shares of the votes.
    """
    q = start if start is not None else shares_of_votes(votes)
    base, model, frequency = None, None, None
    for step in range(MAX_UPDATES):
        frequency = ((q.sum(0) + 1) / (len(q) + votes.classes)).log()
        base = frequency if log_prior is None else log_prior
        model = update(votes, q, model, step in STRENGTH_STEPS, log_prior)
        new = torch.softmax(base + model.like, 1)
        change, q = float((new - q).abs().max()), new
        if change < UPDATE_TOLERANCE and step > 2:
            break
    assert model is not None and frequency is not None
    return model, q, frequency


def shares_of_votes(votes: Ballots) -> Float[Tensor, "N C"]:
    """Return the share of a sample's votes for every class; a worker counts by the entropy of their votes.

    Formula: the weight of a worker is H(shares of the labels in the worker's votes) / largest H, at least `MIN_START_WEIGHT`. One
        label for all samples is no evidence about them. Workers who are not known count as one.
    """
    count = torch.zeros(votes.workers + 1, votes.classes, dtype=torch.float64, device=votes.row.device)
    count.index_put_((votes.worker, votes.label), count.new_ones(len(votes.row)), accumulate=True)  # -1: the last row
    entropy = torch.special.entr(count / count.sum(1, keepdim=True).clamp_min(1)).sum(1)
    weight = (entropy / entropy.max().clamp_min(MIN_PROBABILITY)).clamp_min(MIN_START_WEIGHT)
    found = count.new_zeros(votes.samples, votes.classes)
    found.index_put_((votes.row, votes.label), weight[votes.worker], accumulate=True)
    return found / found.sum(1, keepdim=True)


def update(
    votes: Ballots,
    q: Float[Tensor, "N C"],
    before: WorkerModel | None,
    choose: bool,
    log_prior: Float[Tensor, "N C"] | None = None,
) -> WorkerModel:
    """Return the likeliest confusions for some posteriors of the samples.

    Args:
        choose: choose the strengths of the expected confusions again.
        log_prior: log P(class) of every sample, from features; None: there are none.
    """
    strength = q.new_full((votes.workers,), START_STRENGTH_COUNT) if before is None else before.strength
    pool, total, count = sums_of_votes(votes, q)
    if before is None or choose:
        prior = fit_prior(pool, None if log_prior is None else q.T @ log_prior.exp())
    else:
        prior = before.prior._replace(right=share_of_right(pool))
    pooled, swapped = pooled_confusions(pool, prior)
    named = votes.pair_worker >= 0
    right = q.new_zeros(votes.workers, votes.classes)
    own = count.gather(1, votes.pair_label[:, None])[:, 0]
    right[votes.pair_worker[named], votes.pair_label[named]] = own[named]
    odds = torch.logit(pooled.diagonal().clamp(1e-6, 1 - 1e-6))
    skill, spread = fit_skill(right, total[:-1] - right, odds, before)
    mean = expected_columns(
        pooled.T[votes.pair_label], pooled.diagonal()[None], skill, votes.pair_worker, votes.pair_label
    )
    if choose and votes.workers:
        strength, _ = likeliest_strength(count[named], mean[named], total[:-1], votes.pair_worker[named])
    added = torch.cat([strength, strength.new_ones(1)])[votes.pair_worker][:, None]
    column = (count + added * mean) / (total[votes.pair_worker] + added)
    column = torch.where(named[:, None], column, mean)
    model = WorkerModel(pooled, column, torch.zeros_like(q), skill, spread, strength, prior, swapped)
    logs = log_votes(votes, q, model)
    return model._replace(like=torch.zeros_like(q).index_add_(0, votes.row, logs))


def sums_of_votes(
    votes: Ballots, q: Float[Tensor, "N C"]
) -> tuple[Float[Tensor, "C C"], Float[Tensor, "U C"], Float[Tensor, "P C"]]:
    """Return the votes of all workers by true class and label, of every worker by true class, and of every pair by true class.

    The last row of the second table, for workers who are not known, is 0.
    """
    by_vote, known = q[votes.row], votes.worker >= 0
    pool = q.new_zeros(votes.classes, votes.classes).index_add_(0, votes.label, by_vote).T
    total = q.new_zeros(votes.workers + 1, votes.classes).index_add_(0, votes.worker[known], by_vote[known])
    return pool, total, q.new_zeros(len(votes.pair_label), votes.classes).index_add_(0, votes.pair, by_vote)


def log_votes(votes: Ballots, q: Float[Tensor, "N C"], model: WorkerModel) -> Float[Tensor, "V C"]:
    """Return log P(vote | true class) of every vote, by confusions without the votes about the same sample."""
    pool, total, count = sums_of_votes(votes, q)
    at, by_vote = votes.counts, q[votes.row]
    rest = (pool.sum(1) - by_vote * at.sum(1)[votes.row, None]).clamp_min(0)
    here = (pool.T[votes.label] - by_vote * at[votes.row, votes.label][:, None]).clamp_min(0)
    diagonal = (pool.diagonal() - by_vote * at[votes.row]).clamp_min(0)
    here, diagonal = shrunk_confusions(here, diagonal, rest, model.prior.wrong.T[votes.label], model.prior)
    diagonal = torch.where(model.swapped, model.pooled.diagonal(), diagonal)
    mean = expected_columns(here, diagonal, model.skill, votes.worker, votes.label)
    added = torch.cat([model.strength, model.strength.new_ones(1)])[votes.worker][:, None]
    single = (count[votes.pair] - by_vote).clamp_min(0) + added * mean
    single = single / ((total[votes.worker] - by_vote).clamp_min(0) + added)
    return torch.where((votes.worker >= 0)[:, None], single, mean).clamp_min(MIN_PROBABILITY).log()


def share_of_right(count: Float[Tensor, "C C"]) -> float:
    """Return the share of right votes in all classes, from votes by true class and label."""
    share = (float(count.diagonal().sum()) + 1) / (float(count.sum()) + 2)
    return min(max(share, 1 / len(count)), 1 - 1e-6)


def fit_prior(count: Float[Tensor, "C C"], similar: Float[Tensor, "C C"] | None) -> PooledPrior:
    """Return the likeliest prior of the confusions of all workers.

    Args:
        count: votes by true class and label.
        similar: how much the features of a class suggest each other class; None: there are no features.
    """
    right, share = count.diagonal(), share_of_right(count)
    wrong = (count.sum(1) - right).clamp_min(0)
    mean = count.new_tensor([share, 1 - share])[:, None].expand(2, len(count))
    everyone = torch.zeros(len(count), dtype=torch.long, device=count.device)
    of_right, _ = likeliest_strength(torch.stack([right, wrong]), mean, (right + wrong)[None], everyone[:2])
    other, equal = count.T.clone().fill_diagonal_(0), torch.full_like(count, 1 / max(1, len(count) - 1))
    tried = [equal]
    if similar is not None:
        near = similar.clone().fill_diagonal_(0)
        near = near / near.sum(1, keepdim=True).clamp_min(1e-30)
        tried += [torch.lerp(equal, near, part) for part in SIMILAR_GRID]
    fits = [(*map(float, likeliest_strength(other, one.T, wrong[None], everyone)), one) for one in tried]
    strength, _, expected = max(fits, key=lambda one: one[1])
    return PooledPrior(share, float(of_right), expected, strength)


def shrunk_confusions(
    count: Float[Tensor, "n C"], right: Float[Tensor, "*n C"], total: Float[Tensor, "*n C"],
    expected: Float[Tensor, "n C"], prior: PooledPrior,
) -> tuple[Float[Tensor, "n C"], Float[Tensor, "*n C"]]:  # fmt: skip
    """Return P(label | true class) of wrong labels, and P(right vote | true class), from counts by true class.

    Args:
        count: votes for the label of each row.
        right: votes for the true class.
        total: all votes.
        expected: expected share of the label in the wrong votes.
    """
    p = (right + prior.right_strength * prior.right) / (total + prior.right_strength)
    wrong = (total - right).clamp_min(0) + prior.wrong_strength
    return (count + prior.wrong_strength * expected) / wrong * (1 - p), p


def pooled_confusions(
    count: Float[Tensor, "C C"], prior: PooledPrior
) -> tuple[Float[Tensor, "C C"], Bool[Tensor, "C"]]:
    """Return P(vote | true class) over all workers, and the classes of which most votes seem to be for another class.

    A row whose largest entry is not that of its class would exchange two classes; its class gets a share equal to the largest of
    the others.
    """
    table, right = shrunk_confusions(count.T, count.diagonal(), count.sum(1), prior.wrong.T, prior)
    table = table.T.clone()
    table.diagonal().copy_(right)
    other = table.clone().fill_diagonal_(0).amax(1)
    swapped = table.diagonal() < other
    table.diagonal().copy_(torch.maximum(table.diagonal(), other))
    return table / table.sum(1, keepdim=True), swapped


def likeliest_strength(
    count: Float[Tensor, "P C"], mean: Float[Tensor, "P C"], total: Float[Tensor, "W C"], worker: Int[Tensor, "P"]
) -> tuple[Float[Tensor, "W"], Float[Tensor, "W"]]:
    """Return the strength of the prior with the highest likelihood of each worker's counts, and the log likelihood.

    The likelihood is that of a Dirichlet-multinomial distribution, without a constant.

    Args:
        count: votes of pairs of worker and label, by true class.
        mean: expected share of these votes.
        total: all votes of a worker, by true class.
        worker: worker of every pair.
    """
    seen, tried = count > 1e-6, []  # where there is no vote, the likelihood does not depend on the strength
    owner = worker[:, None].expand_as(count)[seen]
    count, mean = count[seen], mean[seen]
    for strength in STRENGTH_GRID:
        prior = (strength * mean).clamp_min(1e-9)
        gain = torch.lgamma(prior + count) - torch.lgamma(prior)
        cost = torch.lgamma(total + strength) - torch.lgamma(total.new_tensor(strength))
        tried.append(total.new_zeros(len(total)).index_add_(0, owner, gain) - cost.sum(1))
    fit, best = torch.stack(tried).max(0)
    return total.new_tensor(STRENGTH_GRID)[best], fit


def fit_skill(
    right: Float[Tensor, "W C"], wrong: Float[Tensor, "W C"], odds: Float[Tensor, "C"], before: WorkerModel | None
) -> tuple[Float[Tensor, "W"], float]:
    """Return how much the log odds of each worker's votes being right differ from those of all, and their spread."""
    skill = right.new_zeros(len(right)) if before is None else before.skill
    variance = SKILL_PRIOR_VARIANCE if before is None else before.spread**2
    if not len(right):
        return skill, 0.0
    wrong = wrong.clamp_min(0)
    for _ in range(5):  # Newton steps; the objective is concave
        p = torch.sigmoid(odds + skill[:, None])
        slope = (right * (1 - p) - wrong * p).sum(1) - skill / variance
        bend = ((right + wrong) * p * (1 - p)).sum(1) + 1 / variance
        skill = (skill + (slope / bend).clamp(-2, 2)).clamp(-SKILL_LIMIT, SKILL_LIMIT)
    seen = ((right + wrong).sum(1) > 0).to(skill)
    square = ((skill.square() + 1 / bend) * seen).sum() + SKILL_PRIOR_WORKERS * SKILL_PRIOR_VARIANCE
    return skill, float((square / (seen.sum() + SKILL_PRIOR_WORKERS)).sqrt())


def expected_columns(
    pooled: Float[Tensor, "n C"], right: Float[Tensor, "#n C"], skill: Float[Tensor, "W"], worker: Int[Tensor, "n"],
    label: Int[Tensor, "n"],
) -> Float[Tensor, "n C"]:  # fmt: skip
    """Return P(vote | true class) of votes, expected from the confusions of all workers and the skill of the worker.

    Args:
        pooled: P(vote | true class) over all workers.
        right: P(right vote | true class) over all workers.
        worker: -1: not known.
    """
    mine = torch.cat([skill, skill.new_zeros(1)])[worker][:, None]  # -1: the last entry
    accuracy = torch.sigmoid(torch.logit(right.clamp(1e-6, 1 - 1e-6)) + mine)
    mean = pooled * ((1 - accuracy) / (1 - right).clamp_min(MIN_PROBABILITY))
    at = label[:, None]
    return mean.scatter(1, at, accuracy.gather(1, at))


class Decided(NamedTuple):
    """Label of every sample by its posterior, the probability that it is wrong, and whether the evidence decides."""

    label: Int[Tensor, "N"]
    wrong: Float[Tensor, "N"]
    undecided: Bool[Tensor, "N"]


def decide(q: Float[Tensor, "N C"], count: Float[Tensor, "N C"]) -> Decided:
    """Return the most probable labels; of equal ones the one with more votes, then the first."""
    top = q.amax(1, keepdim=True)
    tied = q >= top * (1 - 1e-9)
    label = torch.where(tied, count + 1, 0).argmax(1)
    second = q.scatter(1, label[:, None], 0).amax(1)
    return Decided(label, (1 - q.gather(1, label[:, None])[:, 0]).clamp(0, 1), second > MIN_UNDECIDED_RATIO * top[:, 0])


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
