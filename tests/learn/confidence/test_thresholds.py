"""Thresholds against trying every split, against scikit-learn, and where there is nothing to split."""

import math
import statistics

import numpy as np
import pytest
import torch

from likewise.learn.confidence.thresholds import Average, mixture, otsu, weigh

INF = torch.inf


def cost(losses, t, ddof):
    """What a split costs, by the definition; infinite where a side has no such variance."""
    total = 0.0
    for side in ([v for v in losses if v < t], [v for v in losses if v >= t]):
        if len(side) <= ddof:
            if ddof:
                return math.inf
            continue
        middle = statistics.fmean(side)
        total += len(side) * sum((v - middle) ** 2 for v in side) / (len(side) - ddof)
    return total / len(losses)


def by_hand(losses, ddof):
    """All candidates and what they cost."""
    L = sorted(losses)
    candidates = [(L[i] + L[i + 1]) / 2 for i in range(1, len(L) - 2)]
    return candidates, [cost(losses, t, ddof) for t in candidates]


def batches(number=40):
    rng = np.random.default_rng(0)
    for i in range(number):
        n = [4, 5, 6, 9, 30][i % 5]
        yield rng.normal(size=n)
        yield np.concatenate([rng.normal(0, 0.3, n), rng.normal(3, 0.5, n // 2)])
        yield rng.integers(0, 4, n).astype(float)  # many ties
    yield np.full(7, 0.1)
    yield np.array([0.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("ddof", [0, 1])
def test_otsu_finds_what_trying_all_splits_finds(ddof):
    for losses in batches():
        tau = float(otsu(torch.tensor(losses), ddof))
        candidates, costs = by_hand(losses.tolist(), ddof)
        assert min(abs(tau - t) for t in candidates) == 0
        assert cost(losses.tolist(), tau, ddof) <= min(costs) * (1 + 1e-9) + 1e-12


def test_the_two_variances_may_split_otherwise():
    found = [(float(otsu(torch.tensor(b))), float(otsu(torch.tensor(b), ddof=1))) for b in batches()]
    assert any(a != b for a, b in found)


@pytest.mark.parametrize("threshold", [otsu, mixture])
def test_few_losses_split_nobody(threshold):
    for n in range(4):
        tau = threshold(torch.rand(n))
        assert tau.shape == () and tau == INF
    few = torch.tensor([1.0, 2.0, INF, torch.nan, 3.0, -INF])
    assert threshold(few) == INF
    assert threshold(torch.full((5,), torch.nan)) == INF


@pytest.mark.parametrize("threshold", [otsu, mixture])
def test_losses_that_are_not_finite_are_left_out(threshold):
    losses = torch.tensor([0.1, 0.2, 0.15, 2.1, 2.2, 1.9, 2.0, 0.12])
    spoilt = torch.cat([losses[:3], torch.tensor([torch.nan, INF]), losses[3:], torch.tensor([-INF])])
    assert 0.2 < threshold(losses) < 1.9
    torch.testing.assert_close(threshold(spoilt), threshold(losses), rtol=1e-12, atol=0)


def test_valid_says_who_counts():
    losses = torch.tensor([0.0, 0.1, 5.0, 5.1, 100.0, 101.0])
    assert abs(float(otsu(losses)) - 52.55) < 1e-5
    assert abs(float(otsu(losses, valid=losses < 50)) - 2.55) < 1e-6


@pytest.mark.parametrize("threshold", [otsu, mixture])
def test_adding_a_number_moves_the_threshold_by_it(threshold):
    losses = torch.from_numpy(next(iter(batches())))
    torch.testing.assert_close(threshold(losses + 1000), threshold(losses) + 1000, rtol=1e-12, atol=0)


def test_equal_losses_are_all_believed():
    losses = torch.full((7,), 0.1)
    assert otsu(losses) == losses.double()[0] and mixture(losses) == INF
    for tau in (otsu(losses), mixture(losses)):
        assert (weigh(losses, tau, 1e-6) == 1).all()


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(6))
def test_the_mixture_of_scikit_learn(seed):
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(seed)
    losses = np.concatenate([rng.normal(1, 0.1 + 0.1 * seed, 200), rng.normal(3, 0.5, 60 + 20 * seed)])
    low, span = losses.min(), np.ptp(losses)
    x = (losses[:, None] - low) / span
    groups = [x[losses < float(otsu(torch.tensor(losses)))], x[losses >= float(otsu(torch.tensor(losses)))]]
    theirs = GaussianMixture(
        2, max_iter=10, tol=1e-2, reg_covar=5e-4, weights_init=[len(g) / len(x) for g in groups],
        means_init=[g.mean(0) for g in groups], precisions_init=[[[1 / (g.var() + 5e-4)]] for g in groups],
    )  # fmt: skip
    theirs.fit(x)
    high = int(theirs.means_[:, 0].argmax())
    grid = np.linspace(theirs.means_.min(), theirs.means_.max(), 100_001)
    crossing = grid[(theirs.predict_proba(grid[:, None])[:, high] > 0.5).argmax()]
    assert abs(float(mixture(torch.tensor(losses))) - (low + span * crossing)) < 1e-4


def test_the_mixture_is_equally_likely_at_its_threshold():
    """Two far groups are each fitted as themselves, so the crossing follows from their own means and variances."""
    a, b = [0.0, 0.1, 0.2, 0.3, 0.1, 0.2], [2.0, 3.0, 2.5]
    losses, span = torch.tensor(a + b).double(), 3.0
    tau = float(mixture(losses))

    def density(group):
        mean = statistics.fmean(group)
        variance = statistics.pvariance(group) / span**2 + 5e-4
        return len(group) / math.sqrt(variance) * math.exp(-(((tau - mean) / span) ** 2) / (2 * variance))

    assert 0.3 < tau < 2 and math.isclose(density(a), density(b), rel_tol=1e-3)


def test_a_component_that_dies_leaves_nobody_suspect():
    assert mixture(torch.tensor([0.0] * 50 + [1.0])) == INF
    assert mixture(torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0])) == INF


def test_average_of_all_batches_so_far():
    average, seen = Average(), []
    for batch in ([1.0, 2.0], [4.0, 6.0, torch.nan, 8.0], [torch.nan], [0.5]):
        expected = statistics.fmean(seen) if seen else 1.5
        assert abs(float(average(torch.tensor(batch))) - expected) < 1e-6
        average.add(torch.tensor(batch))
        seen += [v for v in batch if v == v]
    assert average.count == len(seen)
    assert Average()(torch.tensor([torch.nan, INF])) == INF


def test_average_does_not_lose_small_changes():
    average = Average()
    average.count.fill_(10**8)
    average.mean.fill_(4.0)
    for _ in range(1000):
        average.add(torch.full((100,), 5.0))
    assert abs(float(average.mean + average.rest) - (4 + 1e5 / (1e8 + 1e5))) < 1e-5


def test_moving_average():
    average, expected = Average(rate=0.1), None
    for batch in ([1.0, 2.0], [4.0, 8.0], [torch.nan], [3.0]):
        assert abs(float(average(torch.tensor(batch))) - (1.5 if expected is None else expected)) < 1e-6
        average.add(torch.tensor(batch))
        mean = statistics.fmean(batch)
        if mean == mean:
            expected = mean if expected is None else 0.9 * expected + 0.1 * mean
    assert abs(float(average.mean) - expected) < 1e-6


CAPTURED = """
import torch
from likewise.learn.confidence.thresholds import mixture, otsu, weigh
def work(losses):
    return weigh(losses, otsu(losses, 1), 0.1) + weigh(losses, mixture(losses, steps=2), 0.1)
losses = torch.cat([torch.rand(20), 3 + torch.rand(9), torch.tensor([float("nan")])])
torch.testing.assert_close(torch.compile(work, fullgraph=True, backend="aot_eager")(losses), work(losses))
"""


def test_compiled_in_one_graph(bare):
    bare(exec, CAPTURED, {})
