"""Two names for one class: the held-out distance by hand, its deviation, and what is found in worlds with known truth."""

import math

import numpy as np
import pytest
import torch

from likewise.labels import class_overlap as module
from likewise.labels.class_overlap import (
    MAX_CLASS_ROWS,
    class_overlap,
    common_variance,
    compare_hypotheses,
    estimate,
    group_means,
    incident_pairs,
    states_of,
    stratified_folds,
)


def world(seed, sizes, dim=32, separation=1.0, same=((0, 1),), noise=0.0):
    g = torch.Generator().manual_seed(seed)
    centre = separation * torch.randn(len(sizes), dim, generator=g)
    for first, *others in same:
        centre[others] = centre[first].clone()
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = centre[y] + torch.randn(len(y), dim, generator=g)
    other = (y + torch.randint(1, len(sizes), y.shape, generator=g)) % len(sizes)
    return x, torch.where(torch.rand(len(y), generator=g) < noise, other, y)


def merges(found):
    pairs = zip(found.first.tolist(), found.second.tolist(), found.state)
    return {(a, b) for a, b, state in pairs if state == "merge"}


def test_classes_are_spread_over_folds_and_large_ones_are_cut():
    y = torch.tensor([0] * 8 + [2] * 3 + [1] * 5)
    fold, used = stratified_folds(y, 4, 6, seed=1)
    assert torch.bincount(fold[y == 0], minlength=4).tolist() == [2, 2, 2, 2]
    assert sorted(torch.bincount(fold[y == 1], minlength=4).tolist()) == [1, 1, 1, 2]
    assert sorted(torch.bincount(fold[y == 2], minlength=4).tolist()) == [0, 1, 1, 1]
    assert torch.bincount(y[used]).tolist() == [6, 5, 3] and used.tolist() == sorted(used.tolist())


def test_a_class_in_a_group_is_one_sample():
    x, y = torch.tensor([[1.0], [3.0], [5.0], [7.0], [9.0]]), torch.tensor([0, 0, 1, 1, 1])
    mean, label = group_means(x, y, torch.tensor([4, 4, 4, -1, -1]))
    assert label.tolist() == [0, 1, 1, 1] and mean[:, 0].tolist() == [2.0, 5.0, 7.0, 9.0]


def test_groups_that_share_a_shift_do_not_hide_a_merge():
    """Each group of ten samples has a shift of its own; the groups of class 0 and 1 differ, but not their distribution."""
    x, y = world(3, [150] * 12)
    group = torch.arange(len(y)) // 10
    x = x + torch.randn(int(group.max()) + 1, x.shape[1], generator=torch.Generator().manual_seed(0))[group]
    assert merges(class_overlap(x, y)) == set() and merges(class_overlap(x, y, group)) == {(0, 1)}


def test_the_distance_by_hand(monkeypatch):
    """Sample by sample in numpy; no sample is left out."""
    monkeypatch.setattr(module, "MAX_FOREIGN_ODDS", math.inf)
    x, y = world(0, [12, 9, 15], dim=3)
    found = class_overlap(x, y, seed=3)
    fold, _ = (t.numpy() for t in stratified_folds(y, 4, MAX_CLASS_ROWS, 3))
    z, c = x.double().numpy(), y.numpy()
    z = (z - z.mean(0)) / x.std().item()
    for a, b, distance in zip(found.first.tolist(), found.second.tolist(), found.distance.tolist()):
        total = weights = 0.0
        for k in range(4):
            outside = fold != k
            residual = np.concatenate([z[outside & (c == i)] - z[outside & (c == i)].mean(0) for i in range(3)])
            within = residual.T @ residual / (len(residual) - 3)
            within = 0.6 * within + 0.4 * np.trace(within) / 3 * np.eye(3)
            mean = {(i, side): z[(c == i) & (outside == side)].mean(0) for i in (a, b) for side in (True, False)}
            direction = np.linalg.inv(within) @ (mean[a, True] - mean[b, True])
            weight = 1 / sum(1 / ((c == i) & ~outside).sum() for i in (a, b))
            total += weight * (mean[a, False] - mean[b, False]) @ direction
            weights += weight
        assert distance == pytest.approx(total / weights, rel=1e-3, abs=1e-3)  # float32 projections


def test_the_deviation_by_hand(monkeypatch):
    monkeypatch.setattr(module, "PRIOR_FREEDOM_COUNT", 0.0)
    first = [[1.0, 3.0, 2.0], [2.0, 4.0]]  # projections of name a in two folds
    second = [[0.0, 1.0], [1.0, 5.0, 3.0]]
    held = torch.tensor([
        [[[f(values)] for values in pair] for pair in zip(first, second)]
        for f in (len, sum, lambda v: sum(one * one for one in v))
    ]).double()  # fmt: skip
    distance, deviation, noise = estimate(held, torch.tensor([[5.0], [5.0]]).double())
    share = 1 / (1 / 3 + 1 / 2)  # in both folds
    assert distance.item() == pytest.approx(0.5 * (2 - 0.5) + 0.5 * (3 - 3))
    squares = (1 + 1 + 0) + (1 + 1) + 2 * 0.25 + (4 + 4 + 0)
    variance = squares / (2 + 1 + 1 + 2)
    assert deviation.item() == pytest.approx(math.sqrt(2 * variance * 2 * 0.25 / share))
    assert noise.shape == (1, 2)
    held[0, :, 0] = 0
    assert all(value.isnan().all() for value in estimate(held, torch.tensor([[5.0], [5.0]]).double())[:2])


def test_too_few_kept_samples_are_unknown():
    held = torch.ones(3, 4, 2, 2).double() * 2
    distance, *_ = estimate(held, torch.tensor([[8.0, 8.0], [8.0, 30.0]]).double())
    assert distance.isnan().tolist() == [False, True]  # 8 of 30


def test_the_common_variance_is_recovered():
    distance, scale = torch.tensor([0.0, 1.0, 5.0, 30.0]).double(), torch.tensor([0.1, 0.2, 0.1, 0.3]).double()
    slope, level = common_variance(distance, scale, 1.5 * distance + 40 * scale, torch.ones(4).double())
    assert slope == pytest.approx(1.5) and level == pytest.approx(40)


def test_hypotheses_by_hand(monkeypatch):
    """One step, with the initial distribution: Student's t with centre 0 and spread 1 for log(distance / usual)."""
    stats = pytest.importorskip("scipy.stats")
    monkeypatch.setattr(module, "MAX_FIT_STEPS", 1)
    distance, deviation, usual = (
        torch.tensor(v).double() for v in ([-1.0, 0.5, 9.0], [1.0, 1.0, 2.0], [8.0, 0.2, 9.0])
    )
    noise = torch.tensor([[1.0, 0.4]]).double().expand(3, 2)
    ratio, probability = compare_hypotheses(distance, deviation, noise, usual)
    grid = np.logspace(-3, 2, module.GRID_POINT_COUNT)
    density = stats.t(4).pdf(np.log(grid))
    for d, s, u, log_ratio, p in zip([0, 0.5, 9], [1, 1, 2], [8, 1, 9], ratio.tolist(), probability.tolist()):
        one = stats.t(5).pdf(d / s) / s
        two = sum(
            w * stats.norm(g * u, math.sqrt(1 + 0.4 * g * u)).pdf(d) for g, w in zip(grid, density / density.sum())
        )
        assert log_ratio == pytest.approx(math.log10(one / two))
        assert p == pytest.approx(0.01 * one / (0.01 * one + 0.99 * two))


def test_verdicts_by_hand():
    ratio, probability = (
        torch.tensor([3.0, -1.1, -0.9, 1.0, torch.nan]),
        torch.tensor([0.9, 0.01, 0.1, 0.49, torch.nan]),
    )
    assert states_of(ratio, probability) == ("merge", "distinct", "unknown", "unknown", "unknown")


def test_every_pair_of_a_samples_class():
    number, pair = torch.tensor([2, 0, 1]), torch.tensor([0, 1, 1])  # class 0 in pairs 0 and 1, class 2 in pair 1
    [(at, found)] = incident_pairs(torch.tensor([2, 0, 1]), number, pair)
    assert list(zip(at.tolist(), found.tolist())) == [(0, 1), (1, 0), (1, 1)]


def test_merges_are_found_with_noise_with_three_names_and_with_uneven_sizes(subtests):
    for name, sizes, same, noise in (
        ("clean", [30] * 20, ((0, 1), (2, 3)), 0.0),
        ("noise", [100] * 20, ((0, 1), (2, 3)), 0.2),
        ("three names", [30] * 20, ((0, 1, 2),), 0.0),
        ("uneven", [10, 200, 15, 80, *range(20, 100, 5)], ((0, 1), (2, 3)), 0.0),
    ):
        with subtests.test(name):
            true = {(a, b) for group in same for a in group for b in group if a < b}
            assert merges(class_overlap(*world(1, sizes, same=same, noise=noise))) == true


def test_without_information_all_pairs_are_unknown(subtests):
    for name, (x, y) in (
        ("features of pure noise", world(0, [40] * 12, separation=0.0)),
        ("two classes that are one", world(0, [40] * 2)),
        ("classes of three", world(0, [3] * 12)),
        ("constant features", (torch.ones(60, 4), torch.arange(60) % 6)),
    ):
        with subtests.test(name):
            assert set(class_overlap(x, y).state) <= {"unknown"}


def test_different_classes_stay_apart_and_empty_classes_do_not_count():
    x, y = world(2, [40] * 15, same=())
    found = class_overlap(x, 2 * y)
    assert set(found.state) == {"distinct"} and not (found.first % 2).any() and not (found.second % 2).any()
    assert (found.first < found.second).all() and found.distance.min() > 10
    one = class_overlap(x, torch.zeros_like(y))
    assert one.state == () and len(one.first) == 0


def test_the_distance_of_one_class_from_itself_is_zero_on_average_in_units_of_its_deviation():
    """More features than samples: a distance without held-out samples would be far above 0."""
    z = []
    for seed in range(6):
        found = class_overlap(*world(seed, [12] * 20, dim=300, same=[(2 * i, 2 * i + 1) for i in range(10)]))
        twin = (found.first % 2 == 0) & (found.second == found.first + 1)
        z.append((found.distance / found.deviation)[twin])
    z = torch.cat(z)
    assert len(z) == 60 and abs(z.mean()) < 0.5 and 0.7 < z.std() < 1.4  # four standard errors: 0.52 and 0.37
