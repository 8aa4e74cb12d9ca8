import itertools
import math

import numpy as np
import pytest
import torch
from likewise.errors import LikewiseError

from likewise.labels.annotators import (
    STRENGTH_GRID,
    PooledPrior,
    expected_columns,
    fit_prior,
    fit_skill,
    fit_workers,
    likeliest_strength,
    pooled_confusions,
    update,
)
from likewise.labels.ballots import cast_ballots, decide, shares_of_votes, worker_quality, wrong_votes


def ballots(votes, samples, workers, classes):
    """Votes from triples (row, worker, label)."""
    row, worker, label = (torch.tensor(column) for column in zip(*votes))
    return cast_ballots(row, worker, label, samples, workers, classes)


def simulated(seed=0, samples=600, classes=4, accuracy=(0.95, 0.8, 0.6, 0.3), per_sample=3):
    """Votes of workers with different accuracies whose errors are spread over all classes."""
    rng = np.random.default_rng(seed)
    y, votes = rng.integers(0, classes, samples), []
    for row in range(samples):
        for worker in rng.choice(len(accuracy), per_sample, False):
            right = rng.random() < accuracy[worker]
            other = (y[row] + rng.integers(1, classes)) % classes
            votes.append((row, int(worker), int(y[row] if right else other)))
    return torch.tensor(y), ballots(votes, samples, len(accuracy), classes)


def test_the_likelihood_of_votes_by_hand():
    """Two classes, three samples: the likelihood of a sample uses counts without its own votes, one vote at a time."""
    votes = [(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 0), (2, 0, 1), (2, 1, 1)]
    q = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], dtype=torch.float64)
    cast = ballots(votes, 3, 2, 2)
    model = update(cast, q, None, choose=False)
    pool = [[sum(float(q[r, c]) for r, _, label in votes if label == at) for at in range(2)] for c in range(2)]
    right = (pool[0][0] + pool[1][1] + 1) / (sum(map(sum, pool)) + 2)
    prior = model.prior
    for i, c in itertools.product(range(3), range(2)):
        total = 0.0
        for row, worker, label in votes:
            if row != i:
                continue
            mine = [at for r, _, at in votes if r == i]
            den = sum(pool[c]) - len(mine) * float(q[i, c]) + prior.right_strength
            share = (pool[c][c] - mine.count(c) * float(q[i, c]) + prior.right_strength * right) / den
            hit = 1 / (1 + math.exp(-math.log(share / (1 - share)) - float(model.skill[worker])))
            mean, strength = (
                hit if label == c else 1 - hit,
                float(model.strength[worker]),
            )  # one other label: all wrong votes
            n = sum(float(q[r, c]) for r, w, at in votes if w == worker and at == label) - float(q[i, c])
            of = sum(float(q[r, c]) for r, w, _ in votes if w == worker) - float(q[i, c])
            total += math.log((n + strength * mean) / (of + strength))
        assert float(model.like[i, c]) == pytest.approx(total, rel=1e-9)  # float64: the same terms in another order


def test_the_posterior_is_the_normalised_product():
    _, cast = simulated(samples=60)
    model, q, frequency = fit_workers(cast)
    expected = [
        [math.exp(float(frequency[c] + model.like[i, c])) for c in range(cast.classes)] for i in range(cast.samples)
    ]
    by_hand = torch.tensor([[v / sum(line) for v in line] for line in expected], dtype=torch.float64)
    torch.testing.assert_close(q, by_hand)


def test_workers_of_different_skill_beat_the_majority_and_are_ordered():
    y, cast = simulated()
    model, q, _ = fit_workers(cast)
    assert model.skill.argsort(descending=True).tolist() == [0, 1, 2, 3]
    wrong = float((decide(q, cast.counts).label != y).double().mean())
    assert wrong < float((cast.counts.argmax(1) != y).double().mean())
    expected = float(decide(q, cast.counts).wrong.mean())
    assert abs(expected - wrong) < 0.04  # 600 samples: two standard errors of a share of 0.2 are 0.033


def test_a_worker_who_always_gives_one_label_counts_for_nothing():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    votes = [(i, 0, 0) for i in range(300)]
    for worker in (1, 2, 3):
        votes += [(i, worker, int(y[i] if rng.random() < 0.9 else (y[i] + rng.integers(1, 3)) % 3)) for i in range(300)]
    model, q, _ = fit_workers(ballots(votes, 300, 4, 3))
    assert int(model.skill.argmin()) == 0
    assert float((q.argmax(1) != torch.tensor(y)).double().mean()) < 0.05


def test_order_names_and_classes_do_not_matter():
    _, cast = simulated(samples=200)
    _, q, _ = fit_workers(cast)
    order = torch.randperm(len(cast.row), generator=torch.Generator().manual_seed(0))
    workers, classes = torch.tensor([2, 0, 3, 1]), torch.tensor([3, 1, 0, 2])
    other = cast_ballots(cast.row[order], workers[cast.worker[order]], classes[cast.label[order]], 200, 4, 4)
    _, moved, _ = fit_workers(other)
    torch.testing.assert_close(moved[:, classes], q, atol=1e-6, rtol=1e-6)  # sums in another order, sixty updates


def test_workers_who_are_not_known_share_one_confusion():
    y, cast = simulated(samples=300, accuracy=(0.8, 0.8, 0.8))
    hidden = cast_ballots(cast.row, torch.full_like(cast.worker, -1), cast.label, 300, 0, 4)
    model, q, _ = fit_workers(hidden)
    assert model.skill.shape == (0,) and model.spread == 0
    assert float((q.argmax(1) != y).double().mean()) < 0.15


def test_classes_are_not_exchanged():
    """Most votes about class 1 are for class 0: its row stays at a tie, and the class is reported."""
    count = torch.tensor([[90.0, 10.0], [70.0, 30.0]], dtype=torch.float64)
    table, swapped = pooled_confusions(
        count, PooledPrior(0.6, 1e-6, torch.full((2, 2), 1.0, dtype=torch.float64), 1e-6)
    )
    assert swapped.tolist() == [False, True]
    assert float(table[1, 1]) == pytest.approx(0.5) and float(table[0, 0]) == pytest.approx(0.9, rel=1e-6)
    _, cast = simulated(accuracy=(0.7, 0.7, 0.7))
    model, _, _ = fit_workers(cast)
    assert not model.swapped.any() and (model.pooled.diagonal() > 0.5).all()


def test_the_likeliest_strength_by_hand():
    """Three rows of counts with mean (0.5, 0.5): the Dirichlet-multinomial likelihood, term by term."""
    rows, mean = [(9.0, 1.0), (2.0, 8.0), (5.0, 5.0)], 0.5

    def log_likelihood(k):
        each = (
            math.lgamma(k) - math.lgamma(k + sum(row)) + sum(math.lgamma(k * mean + n) - math.lgamma(k * mean) for n in row)
            for row in rows
        )  # fmt: skip
        return sum(each)

    count = torch.tensor(rows, dtype=torch.float64).T  # label, true class
    total = torch.tensor([[sum(row) for row in rows]], dtype=torch.float64)
    found, fit = likeliest_strength(count, torch.full_like(count, mean), total, torch.tensor([0, 0]))
    assert float(found) == max(STRENGTH_GRID, key=log_likelihood)
    assert float(fit) == pytest.approx(max(map(log_likelihood, STRENGTH_GRID)), rel=1e-9)  # float64


def test_each_worker_has_a_strength_of_its_own():
    """Worker 1 exchanges two classes, worker 0 errs as expected: only the confusions of worker 1 are learnt one by one."""
    count = torch.tensor([[80.0, 20.0], [20.0, 80.0], [2.0, 98.0], [98.0, 2.0]], dtype=torch.float64)
    mean = torch.tensor([[0.8, 0.2], [0.2, 0.8]] * 2, dtype=torch.float64)
    total = torch.full((2, 2), 100.0, dtype=torch.float64)
    found, _ = likeliest_strength(count, mean, total, torch.tensor([0, 0, 1, 1]))
    assert float(found[0]) == STRENGTH_GRID[-1] and float(found[1]) < 10


def test_wrong_votes_are_expected_for_the_classes_that_the_features_suggest():
    """All wrong votes are for the next class; the features suggest it, or the one after it."""
    count = 90 * torch.eye(6, dtype=torch.float64)
    count[torch.arange(6), (torch.arange(6) + 1) % 6] = 10
    near, far = (torch.zeros(6, 6, dtype=torch.float64) for _ in range(2))
    near[torch.arange(6), (torch.arange(6) + 1) % 6] = 1
    far[torch.arange(6), (torch.arange(6) + 2) % 6] = 1
    equal = fit_prior(count, None).wrong
    torch.testing.assert_close(equal, torch.full_like(equal, 0.2))
    assert float(fit_prior(count, near).wrong[0, 1]) > 0.9
    torch.testing.assert_close(fit_prior(count, far).wrong, equal)
    assert fit_prior(count, near).right == pytest.approx(0.9, abs=0.01)


def test_skill_is_the_maximum_of_its_objective():
    right = torch.tensor([[30.0, 10.0], [5.0, 5.0]], dtype=torch.float64)
    wrong = torch.tensor([[2.0, 3.0], [15.0, 5.0]], dtype=torch.float64)
    odds = torch.tensor([1.0, 0.2], dtype=torch.float64)
    skill, spread = fit_skill(right, wrong, odds, None)

    def objective(w, s):
        p = torch.sigmoid(odds + s)
        return float((right[w] * p.log() + wrong[w] * (1 - p).log()).sum() - s**2 / (2 * 0.25))

    for w in range(2):
        best = objective(w, float(skill[w]))
        assert all(objective(w, float(skill[w]) + step) <= best + 1e-9 for step in (-0.05, 0.05))
    assert skill[0] > 0 > skill[1] and spread > 0


def test_expected_columns_of_all_labels_sum_to_one():
    pooled = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.2, 0.5]], dtype=torch.float64)
    skill, label = torch.tensor([1.5], dtype=torch.float64), torch.arange(3)
    columns = expected_columns(pooled.T, pooled.diagonal()[None], skill, torch.zeros(3, dtype=torch.int64), label)
    torch.testing.assert_close(columns.sum(0), torch.ones(3, dtype=torch.float64))
    assert (columns.diagonal() > pooled.diagonal()).all()


def test_a_decision_and_when_there_is_none():
    q = torch.tensor([[0.5, 0.5, 0.0], [0.6, 0.25, 0.15], [0.6, 0.35, 0.05]], dtype=torch.float64)
    found = decide(q, torch.tensor([[1.0, 2.0, 0.0], [1, 0, 0], [1, 0, 0]], dtype=torch.float64))
    assert found.label.tolist() == [1, 0, 0]  # of equal ones, the one with more votes
    assert found.undecided.tolist() == [True, False, True]
    torch.testing.assert_close(found.wrong, torch.tensor([0.5, 0.4, 0.4], dtype=torch.float64))


def test_shares_and_wrong_votes():
    cast = ballots([(0, 0, 1), (0, 1, 1), (0, 2, 0), (1, -1, 2)], 2, 3, 3)
    torch.testing.assert_close(shares_of_votes(cast), torch.tensor([[1 / 3, 2 / 3, 0], [0, 0, 1]], dtype=torch.float64))
    with pytest.raises(LikewiseError, match="every sample must have a vote, but 1 of 3 have none .first: row 2."):
        ballots([(0, 0, 1), (1, 0, 1)], 3, 1, 2)
    with pytest.raises(LikewiseError, match="label must lie between 0 and 1, got 1 to 2"):
        ballots([(0, 0, 1), (1, 0, 2)], 2, 1, 2)


def test_a_worker_who_gives_one_label_to_all_samples_does_not_decide():
    """Two workers: one is right, the other always votes for class 0. By likelihood alone, all samples could be of class 0."""
    y = np.arange(240) % 12
    row, worker = np.arange(240).repeat(2), np.tile([0, 1], 240)
    votes = cast_ballots(*map(torch.as_tensor, (row, worker, np.where(worker == 0, y[row], 0))), 240, 2, 12)
    start = shares_of_votes(votes)
    assert start.argmax(1).tolist() == y.tolist() and float(start[1, 0]) == pytest.approx(1e-3 / 1.001)
    _, q, _ = fit_workers(votes)
    assert q.argmax(1).tolist() == y.tolist()


@pytest.fixture
def voted():
    rng = np.random.default_rng(1)
    y, accuracy = rng.integers(0, 3, 500), np.array([0.95, 0.8, 0.5])
    row, worker = np.arange(500).repeat(3), np.tile(np.arange(3), 500)
    right = rng.random(1500) < accuracy[worker]
    vote = np.where(right, y[row], (y[row] + 1) % 3)  # every wrong vote is for the next class
    return y, cast_ballots(*map(torch.as_tensor, (row, worker, vote)), 500, 3, 3), right.reshape(500, 3).mean(0)


def test_accuracy_and_its_interval(voted):
    _, votes, truth = voted
    _, q, _ = fit_workers(votes)
    found = worker_quality(votes, q)
    assert found.votes.tolist() == [500, 500, 500]
    assert np.abs(found.accuracy.numpy() - truth).max() < 0.05
    assert ((found.low < found.accuracy) & (found.accuracy < found.high)).all()
    wide = (found.high - found.low).tolist()
    assert 0.01 < wide[0] < wide[2] < 0.2


def test_disagreement_and_the_most_frequent_confusion_by_hand():
    votes = cast_ballots(*map(torch.tensor, ([0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [0, 0, 1, 1, 1])), 2, 3, 2)
    q = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    found = worker_quality(votes, q)
    torch.testing.assert_close(found.disagreement, torch.tensor([1 / 3, 1 / 3, 1.0], dtype=torch.float64))
    assert found.confused_from.tolist() == [-1, -1, 0] and found.confused_to.tolist() == [-1, -1, 1]
    assert found.confused.tolist() == [0, 0, 1]


def test_confusions_of_a_worker(voted):
    """Worker 2 is right in half of the votes, and every wrong vote is for the next class."""
    y, votes, _ = voted
    true = torch.nn.functional.one_hot(torch.as_tensor(y), 3).double()
    found = [t.tolist() for t in wrong_votes(votes, true)]
    count = {(pair, c): times for pair, c, times in zip(*found, strict=True)}
    for pair, (worker, label) in enumerate(zip(votes.pair_worker.tolist(), votes.pair_label.tolist())):
        mine = (votes.worker == worker) & (votes.label == label)
        by_hand = [int((mine & (torch.as_tensor(y)[votes.row] == c)).sum()) for c in range(3)]
        assert [count.get((pair, c), 0) for c in range(3) if c != label] == [by_hand[c] for c in range(3) if c != label]
        assert (pair, label) not in count and by_hand[(label + 1) % 3] == 0


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_the_interval_covers_the_accuracy_of_95_percent_of_the_workers(spread):
    """1,000 workers with 48 votes each and known labels; the tolerance is 2.5 standard errors of a share of 0.95."""
    rng = np.random.default_rng(2)
    accuracy = rng.uniform(0.8 - spread, 0.8 + spread, 1000)
    row, worker = np.tile(np.arange(48), 1000), np.arange(1000).repeat(48)
    vote = (rng.random(len(row)) > accuracy[worker]).astype(int)  # class 0 is right
    votes = cast_ballots(*map(torch.as_tensor, (row, worker, vote)), 48, 1000, 2)
    found = worker_quality(votes, torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(48, 2))
    inside = (found.low.numpy() <= accuracy) & (accuracy <= found.high.numpy())
    assert abs(inside.mean() - 0.95) < 2.5 * (0.95 * 0.05 / 1000) ** 0.5
