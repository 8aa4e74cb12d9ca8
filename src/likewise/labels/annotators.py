"""Models of the votes of several workers, and the posterior of every sample: one of all classes, and one of candidate classes.

A worker has few votes. So a worker's confusions start from those of all workers, moved by one number (how much more often this
worker is right), and single confusions of the worker are added as far as the votes support them. If a sample has columns of
candidate classes (`Ballots.columns`), a worker has this number only, and all workers share the confusions, of which only those
that occur are stored: memory grows with votes x columns, not with classes x classes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.labels.ballots import Ballots, Exchanges, column_prior, shares_of_votes, sums_by_class
from likewise.labels.candidate_classes import Columns, without_drawn

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

MAX_UPDATES, UPDATE_TOLERANCE = 60, 1e-3
"""Maximum number of updates of the model, and the largest change of a posterior at which they end."""

MIN_PROBABILITY = 1e-12
"""Smallest probability in a logarithm."""

MIN_SIMILAR_PROBABILITY = 1e-3
"""Smallest probability of a candidate that counts for the classes that the features suggest."""

VOTE_BLOCK_SIZE = 2**22
"""Maximum number of votes x columns whose probabilities are computed at a time."""


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

    def share(self, votes: Ballots, pair: Int[Tensor, "m"], true: Int[Tensor, "m"]) -> Float[Tensor, "m"]:
        """Return P(vote of the pair | true class)."""
        return self.column[pair, true]


class SharedModel(NamedTuple):
    """Fitted accuracy of every worker, and the shares of wrong votes that all workers have in common.

    P(l | c) = a_w for l = c, otherwise (1 - a_w) (n_cl + k e_cl) / (n_c + k); the log odds of a_w are those of `right` plus the
    skill of the worker. Under a class without a column, every other class has an equal share of the wrong votes.
    """

    count: Float[Tensor, "E"]  # wrong votes of every exchange of `Exchanges`; the first: 0
    total: Float[Tensor, "C"]  # wrong votes of every true class
    expected: Float[Tensor, "E"]  # expected share of every exchange in the wrong votes of its true class
    equal: float  # expected share of every other class
    strength: float  # number of votes that the expected shares of a class count as
    right: float  # share of right votes
    like: Float[Tensor, "N W"]
    skill: Float[Tensor, "U"]
    spread: float
    swapped: Bool[Tensor, "C"]  # no class: classes have no accuracy of their own

    def accuracy(self, worker: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return P(right vote) of some workers; -1: not known."""
        odds = torch.logit(self.total.new_tensor(self.right))
        return torch.sigmoid(odds + torch.cat([self.skill, self.skill.new_zeros(1)])[worker])

    def share(self, votes: Ballots, pair: Int[Tensor, "m"], true: Int[Tensor, "m"]) -> Float[Tensor, "m"]:
        """Return P(vote of the pair | true class) of wrong votes."""
        number = votes.exchanges.find(true * votes.classes + votes.pair_label[pair])
        share = (self.count[number] + self.strength * self.expected[number]) / (self.total[true] + self.strength)
        return (1 - self.accuracy(votes.pair_worker[pair])) * share


def fit_workers(
    votes: Ballots, log_prior: Float[Tensor, "N W"] | None = None, start: Float[Tensor, "N W"] | None = None
) -> tuple[WorkerModel | SharedModel, Float[Tensor, "N W"], Float[Tensor, "C"]]:
    """Return the confusions of the workers, the posterior of every sample, and the log frequencies of the classes.

    Formula: q_ic ~ prior_ic prod_v P_wc(l_v), the posterior of sample i with votes l_v of workers w;
        P_wc(l) = (n_wcl + k m_wcl) / (n_wc + k), n the votes weighted with q, k the likeliest strength for w;
        m_wcc = sigmoid(logit pooled_cc + skill_w), m_wcl = (1 - m_wcc) pooled_cl / (1 - pooled_cc);
        pooled_c is shrunk to the same share of right votes in all classes, and to wrong ones for the classes that the features
        of class c suggest, or for all classes equally; skill_w maximises the likelihood of right and wrong votes times
        Normal(0, spread^2); repeated until q settles.
        In the posterior of a sample, its own votes are left out of n and pooled: they would confirm themselves.
        It starts from `shares_of_votes`, which also decides between solutions that differ by exchanged classes. With columns of
        candidate classes, P is that of `SharedModel`.

    Args:
        log_prior: log P(class) of every sample, from other evidence; None: the frequencies of the classes, which are fitted.
        start: posterior to start from; None: the shares of the votes.
    """
    q = start if start is not None else shares_of_votes(votes)
    base, model, frequency = None, None, None
    for step in range(MAX_UPDATES):
        count = sums_by_class(q, votes.columns, votes.classes)
        frequency = ((count + 1) / (count.sum() + votes.classes)).log()
        base = column_prior(frequency, votes.columns) if log_prior is None else log_prior
        if votes.columns is None:
            assert not isinstance(model, SharedModel)
            model = update(votes, q, model, step in STRENGTH_STEPS, log_prior)
        else:
            assert not isinstance(model, WorkerModel)
            model = update_shared(votes, q, model, step in STRENGTH_STEPS, log_prior)
        new = torch.softmax(base + model.like, 1)
        change, q = float((new - q).abs().max()), new
        if change < UPDATE_TOLERANCE and step > 2:
            break
    assert model is not None and frequency is not None
    return model, q, frequency


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


def log_votes(votes: Ballots, q: Float[Tensor, "N W"], model: WorkerModel | SharedModel) -> Float[Tensor, "V W"]:
    """Return log P(vote | true class) of every vote, by confusions without the votes about the same sample."""
    if isinstance(model, SharedModel):
        return shared_log_votes(votes, q, model, torch.arange(len(votes.row), device=q.device))
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
    count: Float[Tensor, "P K"], mean: Float[Tensor, "P K"], total: Float[Tensor, "W C"], worker: Int[Tensor, "P"]
) -> tuple[Float[Tensor, "W"], Float[Tensor, "W"]]:
    """Return the strength of the prior with the highest likelihood of each worker's counts, and the log likelihood.

    The likelihood is that of a Dirichlet-multinomial distribution, without a constant.

    Args:
        count: votes of pairs of worker and label, by true class; or of a pair and a true class in each row.
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
    right: Float[Tensor, "W C"], wrong: Float[Tensor, "W C"], odds: Float[Tensor, "C"],
    before: WorkerModel | SharedModel | None,
) -> tuple[Float[Tensor, "W"], float]:  # fmt: skip
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


def update_shared(
    votes: Ballots, q: Float[Tensor, "N W"], before: SharedModel | None, choose: bool,
    log_prior: Float[Tensor, "N W"] | None = None,
) -> SharedModel:  # fmt: skip
    """Return the likeliest accuracies and shares of wrong votes for some posteriors of the samples; see `update`."""
    at, columns = votes.exchanges, votes.columns
    assert columns is not None
    own, named = votes.of_label(q), votes.worker >= 0
    right = min(max((float(own.sum()) + 1) / (len(own) + 2), 1 / votes.classes), 1 - 1e-6)
    zero = q.new_zeros(votes.workers)
    hit = zero.index_add(0, votes.worker[named], own[named])
    miss = zero.index_add(0, votes.worker[named], 1 - own[named])
    skill, spread = fit_skill(hit[:, None], miss[:, None], torch.logit(q.new_tensor([right])), before)
    single, count = without_drawn(q, columns), q.new_zeros(len(at.code))
    for some in vote_blocks(votes):
        count.index_add_(0, at.number[some].flatten().long(), single[votes.row[some]].flatten())
    count[0] = 0
    true, equal = at.code.clamp_min(0) // votes.classes, 1 / (votes.classes - 1)
    total = q.new_zeros(votes.classes).index_add_(0, true, count)
    if before is None or choose:
        near = None if log_prior is None else similar_shares(at, single, log_prior, columns, votes.classes)
        expected, strength = expected_shares(count, total, near, equal)
    else:
        expected, strength = before.expected, before.strength
    none = torch.zeros(votes.classes, dtype=torch.bool, device=q.device)
    model = SharedModel(count, total, expected, equal, strength, right, torch.zeros_like(q), skill, spread, none)
    like = torch.zeros_like(q)
    for some in vote_blocks(votes):
        like.index_add_(0, votes.row[some], shared_log_votes(votes, q, model, some))
    return model._replace(like=like)


def vote_blocks(votes: Ballots) -> tuple[Int[Tensor, "v"], ...]:
    """Return the numbers of all votes in blocks whose probabilities fit in memory."""
    return torch.arange(len(votes.row), device=votes.row.device).split(max(1, VOTE_BLOCK_SIZE // votes.width))


def shared_log_votes(
    votes: Ballots, q: Float[Tensor, "N W"], model: SharedModel, some: Int[Tensor, "v"]
) -> Float[Tensor, "v W"]:
    """Return log P(vote | true class) of some votes, by shares of wrong votes without the votes about the same sample."""
    assert votes.columns is not None
    row, columns = votes.row[some], votes.columns.of(votes.row[some])
    single, number = without_drawn(q[row], columns), votes.exchanges.number[some].long()
    other = (votes.size[row, None] - votes.counts[row]).clamp_min(0)  # votes for other classes than that of the column
    here = (model.count[number] - single * votes.same[some, None]).clamp_min(0)
    rest = (model.total[columns.label] - single * other).clamp_min(0)
    share = (here + model.strength * model.expected[number]) / (rest + model.strength)
    share = share.masked_fill(columns.is_drawn, model.equal)
    accuracy = model.accuracy(votes.worker[some])[:, None]
    is_own = torch.arange(votes.width, device=q.device) == votes.slot[some, None]
    return torch.where(is_own, accuracy, (1 - accuracy) * share).clamp_min(MIN_PROBABILITY).log()


def expected_shares(
    count: Float[Tensor, "E"], total: Float[Tensor, "C"], near: Float[Tensor, "E"] | None, equal: float
) -> tuple[Float[Tensor, "E"], float]:
    """Return the likeliest expected share of every exchange, and the number of votes that the shares of a class count as.

    Args:
        count: wrong votes of every exchange.
        total: wrong votes of every true class.
        near: share of every exchange that the features of its true class suggest; None: there are no features.
        equal: share of every other class.
    """
    tried = [torch.full_like(count, equal)]
    if near is not None:
        tried += [torch.lerp(tried[0], near, part) for part in SIMILAR_GRID]
    one = torch.zeros(len(count), dtype=torch.long, device=count.device)
    fits = [(*map(float, likeliest_strength(count[:, None], e[:, None], total[None], one)), e) for e in tried]
    strength, _, expected = max(fits, key=lambda fit: fit[1])
    return expected, strength


def similar_shares(
    at: Exchanges, q: Float[Tensor, "N W"], log_prior: Float[Tensor, "N W"], columns: Columns, classes: int
) -> Float[Tensor, "E"]:
    """Return how much the features of every true class suggest the label of an exchange, as a share of all other classes.

    Formula: sum_i q_ic p_il / sum over l != c, p the probabilities by features; those below `MIN_SIMILAR_PROBABILITY` count as 0.
    """
    from scipy.sparse import csr_matrix  # slow to import

    tables = []
    for table in (q, without_drawn(log_prior.exp(), columns)):
        row, column = (table >= MIN_SIMILAR_PROBABILITY).nonzero(as_tuple=True)
        place = (row.cpu().numpy(), columns.label[row, column].cpu().numpy())
        tables.append(csr_matrix((table[row, column].cpu().numpy(), place), (len(q), classes)))
    both = (tables[0].T @ tables[1]).tocoo()
    code, order = torch.as_tensor(both.row.astype("int64") * classes + both.col).sort()
    value = torch.as_tensor(both.data)[order].where(code // classes != code % classes, 0)
    total = value.new_zeros(classes).index_add_(0, code // classes, value)
    if not len(code):
        return q.new_zeros(len(at.code))
    place = torch.searchsorted(code, at.code.cpu()).clamp_max(len(code) - 1)
    found = value[place].where(code[place] == at.code.cpu(), 0)
    return (found / total[at.code.cpu().clamp_min(0) // classes].clamp_min(1e-30)).to(q)
