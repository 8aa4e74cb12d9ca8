import math

import pytest
import torch

from likewise.labels.off_topic import (
    COVARIANCE_SHRINK_SHARE,
    Predictive,
    _mixture_step,
    _weighted_quantiles,
    fit_predictive,
    off_topic,
    off_topic_probability,
    without_diffuse_classes,
)
from likewise.score.metrics.detection import detection


def simulated(classes=20, per_class=25, dim=40, foreign=10, noise=0.0, seed=0):
    """Features of classes, given labels, and foreign samples with random labels at the end."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(classes).repeat_interleave(per_class)
    centres = torch.randn(classes, dim, generator=g) + 2
    x = centres[y] + 0.5 * torch.randn(len(y), dim, generator=g)
    odd = torch.randn(foreign, dim, generator=g) * 2 - 3
    wrong = torch.rand(len(y), generator=g) < noise
    other = (y + torch.randint(1, classes, y.shape, generator=g)) % classes
    given = torch.cat([torch.where(wrong, other, y), torch.randint(classes, (foreign,), generator=g)])
    return torch.cat([x, odd]), given, torch.arange(len(given)) >= len(y), torch.cat([wrong, torch.zeros(foreign) > 0])


def test_distances_by_hand():
    g = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(2, 2, generator=g))[0].double() * 1.5
    between, count = torch.tensor([2.0, 0.3]).double(), torch.tensor([3.0, 0.0, 1.0]).double()
    mean = torch.tensor([[1.0, -1.0], [0.0, 0.0], [2.0, 0.5]]).double()
    known = Predictive(torch.tensor([0.2, 0.1]).double(), turn, count, mean, between)
    p, y = torch.randn(4, 2, generator=g).double(), torch.tensor([0, 1, 2, 1])
    found, top = known.distances(p, y)
    for i in range(4):
        u, square, density = (p[i] - known.origin) @ turn, [], []
        for c in range(3):
            spread = [1 / (1 / float(b) + float(count[c])) for b in between]  # variance of the centre given the samples
            centre = [s * float(count[c] * m) for s, m in zip(spread, mean[c])]
            square.append(sum((float(a) - m) ** 2 / (1 + s) for a, m, s in zip(u, centre, spread)))
            unseen = math.inf if count[c] == 0 and y[i] != c else 0
            density.append(square[c] + sum(math.log(1 + s) for s in spread) + unseen)
        best = density.index(min(density))
        assert int(top[i]) == best
        assert float(found[i]) == pytest.approx(min(square[best], square[y[i]]), abs=1e-12)


def test_the_fit_whitens_the_shrunk_covariance_and_finds_the_spread_of_centres():
    g = torch.Generator().manual_seed(1)
    y = torch.arange(300).repeat_interleave(10)
    x = torch.randn(300, 4, generator=g).double()[y] * torch.tensor([3.0, 1.0, 0.0, 0.0])
    x = x + torch.randn(3000, 4, generator=g)
    known = fit_predictive(x, y, torch.ones(3000, dtype=torch.bool), 300)
    rest = x - torch.stack([x[y == c].mean(0) for c in range(300)])[y]
    within = rest.T @ rest / 2700
    shrunk = (1 - COVARIANCE_SHRINK_SHARE) * within + COVARIANCE_SHRINK_SHARE * within.diagonal().mean() * torch.eye(
        4
    ).double()
    torch.testing.assert_close(known.map.T @ shrunk @ known.map, torch.eye(4).double(), rtol=0, atol=1e-9)
    expected = [v + (10 / 4 - v) * 4 / 304 for v in (0, 0, 1, 9)]  # mean 10 / 4, shrunk by K / (K + C)
    assert known.between.sort().values.tolist() == pytest.approx(expected, rel=0.2, abs=0.05)


def test_quantiles_by_weight():
    values, weight = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 1.0, 0.0, 2.0])
    assert _weighted_quantiles(values, weight, (0.25, 0.5, 0.75)).tolist() == [1.0, 2.0, 4.0]


def test_one_step_of_the_mixture_by_hand():
    value = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0, 20.0]).double()
    before = torch.tensor([0.0] * 9 + [1.0]).double()
    step = _mixture_step(value, before)
    middle, upper, tail = 4.0, 6.0 - 4.0, 9.0 - 4.0  # of nine values: the 5th, the 7th and the 9th
    shape = math.log(math.log(5) / math.log(2)) / math.log(tail / upper)
    scale = tail / math.log(5) ** (1 / shape)
    share, total = 1 / 5, 0.0  # one of five values above the median
    for i in range(10):
        if value[i] <= middle:
            assert step.posterior[i] == 0
            continue
        t = (float(value[i]) - middle) / scale
        known = (1 - share) * shape / scale * t ** (shape - 1) * math.exp(-(t**shape))
        off = share * math.exp(-0.5 * ((float(value[i]) - 20) / scale) ** 2) / (scale * math.sqrt(2 * math.pi))
        assert float(step.posterior[i]) == pytest.approx(off / (known + off), abs=1e-12)
        total += math.log(known + off)
    assert float(step.likelihood) == pytest.approx(total)


def test_the_probability_counts_planted_scores_and_none_without_them():
    g = torch.Generator().manual_seed(0)
    typical = torch.randn(5000, generator=g)
    assert off_topic_probability(typical).max() == 0
    for planted in (50, 500):
        p = off_topic_probability(torch.cat([typical, 9 + torch.randn(planted, generator=g)]))
        assert float(p.sum()) == pytest.approx(planted, rel=0.05)
        assert (p[5000:] >= 0.5).double().mean() > 0.95 and (p[:5000] >= 0.5).double().mean() < 0.005


def test_foreign_samples_are_found_and_wrong_labels_are_not_off_topic():
    for noise in (0.0, 0.3):
        x, y, foreign, wrong = simulated(noise=noise)
        found = off_topic(x, y, 20)
        assert detection(-found.score.double(), foreign).AUROC > 0.99
        assert (found.probability[foreign] >= 0.5).double().mean() > 0.8
        assert (found.probability[wrong] >= 0.5).double().sum() <= 0.02 * len(y)
    x, y, foreign, _ = simulated(foreign=0)
    assert (off_topic(x, y, 20).probability >= 0.5).double().mean() <= 0.005


def test_copies_of_a_foreign_sample_do_not_vouch_for_each_other():
    x, y, foreign, _ = simulated(foreign=6)
    x[foreign] = x[foreign][:1] + 0.01 * torch.randn(6, 40, generator=torch.Generator().manual_seed(3))
    y[foreign] = 4  # all under one label
    assert detection(-off_topic(x, y, 20).score.double(), foreign).AUROC > 0.95


def test_small_classes_are_not_off_topic():
    x, y, foreign, _ = simulated(foreign=10)
    y[foreign] = 4 + torch.arange(10)  # a foreign sample in a class of one or two would change what the class is
    kept = (y > 3) | foreign | (torch.arange(len(y)) % 25 < torch.tensor([1, 2, 3, 4])[y.clamp_max(3)])
    found = off_topic(x[kept], y[kept], 20)
    small = (y[kept] < 4) & ~foreign[kept]
    assert int(small.sum()) == 10 and int((found.probability[small] >= 0.5).sum()) == 0
    assert (found.probability[foreign[kept]] >= 0.5).double().mean() > 0.8


def test_the_result_repeats():
    x, y, _, _ = simulated(classes=3, per_class=4, foreign=1)
    first, second = (off_topic(x, y, 3) for _ in range(2))
    assert torch.equal(first.score, second.score) and torch.isfinite(first.score).all()


def test_the_samples_of_a_diffuse_class_are_not_off_topic_by_hand():
    """Flagged are 3 of 10 samples, 2 of 2, 3 of 11 and 4 of 5; at least 3 samples and 30 % make a class diffuse."""
    size, flagged = [10, 2, 11, 5], [3, 2, 3, 4]
    y = torch.arange(4).repeat_interleave(torch.tensor(size))
    p = torch.cat([torch.tensor([0.9] * f + [0.4] * (n - f)) for n, f in zip(size, flagged)])
    expected = torch.where((y == 0) | (y == 3), 0.0, p)
    assert torch.equal(without_diffuse_classes(p, y), expected)
    order = torch.randperm(28, generator=torch.Generator().manual_seed(0))
    assert torch.equal(without_diffuse_classes(p[order], y[order]), expected[order])
    assert torch.equal(without_diffuse_classes(p.double(), y), expected.double())


def test_a_wide_class_is_kept_and_foreign_samples_of_many_labels_are_not():
    x, y, foreign, _ = simulated()
    g = torch.Generator().manual_seed(4)
    x[y == 7] = x[y == 7] + 4 * torch.randn(int((y == 7).sum()), 40, generator=g)
    found = off_topic(x, y, 20)
    assert (off_topic_probability(found.score)[y == 7] >= 0.5).double().mean() > 0.3  # by their scores, they would be
    assert (found.probability[y == 7] == 0).all()
    assert (found.probability[foreign & (y != 7)] >= 0.5).double().mean() > 0.8
