"""Forecast of a review: labels of worlds and the interval by hand, its coverage, determinism, and when there is none."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from likewise.labels.many_heads import HeadSettings
from likewise.labels.posterior_update import Candidates
from likewise.labels.review_forecast import (
    Action,
    Forecast,
    GainCurve,
    curve_points,
    expected_decisions,
    forecast_review,
    label_effects,
    make_actions,
    predictive_interval,
    random_loss,
    remaining_gain,
    world_labels,
)

SMALL = HeadSettings(dim=4, epochs=1)


def case(seed=0, wrong=0.9):
    """Ten classes of sixteen; five are trained, of whose samples twelve have a probably wrong label."""
    random = torch.Generator().manual_seed(seed)
    true = torch.arange(160) % 10
    x = 2 * torch.randn(10, 6, generator=random)[true] + torch.randn(160, 6, generator=random)
    train = true < 5
    rows = train.nonzero()[:12, 0]
    given = true.clone()
    given[rows] = (true[rows] + 1) % 5
    probability = torch.zeros(160, 2, dtype=torch.float64)
    probability[:, 0] = 1
    probability[rows] = torch.tensor([1 - wrong, wrong], dtype=torch.float64)
    other = torch.where(given == true, (given + 1) % 10, true)
    return x, given, Candidates(torch.stack([given, other], 1), probability), rows, train


def look(seed=0, **changes):
    x, given, candidates, rows, train = case()
    settings = {"train": train, "test": ~train, "worlds": 4, "settings": SMALL, "seed": seed} | changes
    return forecast_review(x, given, candidates, rows, **settings)


def test_no_interval_is_narrower_than_one_query():
    """Classes that are far apart: no world changes a result, which is no proof that none will."""
    _, given, candidates, rows, train = case()
    far = 1000 * torch.nn.functional.one_hot(given, 10).float()
    found = forecast_review(far, given, candidates, rows, train=train, test=~train, worlds=4, settings=SMALL, k=[12])
    for curve in found.curves.values():
        assert curve.low[0] == curve.mean[0] == curve.high[0] == 0  # nothing is reviewed
        assert curve.low[1] <= curve.mean[1] - 1 / 80 and curve.high[1] >= curve.mean[1] + 1 / 80


def test_labels_of_worlds_by_hand():
    given, truth = torch.tensor([0, 1, 2, 0]), torch.tensor([[1, 1, 0, 3], [0, 2, 2, 1]])
    classes = torch.tensor([True, True, True, False])
    found = world_labels(given, truth, torch.tensor([3, 0]), np.array([0, 1, 2]), classes)
    assert found.tolist() == [
        [[0, 1, 2, 0], [0, 1, 2, -1], [1, 1, 2, -1]],
        [[0, 1, 2, 0], [0, 1, 2, 1], [0, 1, 2, 1]],
    ]


def test_factor_of_true_labels_by_hand():
    probability = torch.tensor([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0], [0.9, 0.1, 0.0]], dtype=torch.float64)
    candidates = Candidates(torch.tensor([[0, 1, 2]]).repeat(3, 1), probability)
    found = random_loss(candidates, torch.tensor([1, 0, 2]), np.array([0, 1, 2, 3]))
    missed = 1 - 0.2**2 - 0.5**2 - 0.3**2
    last = (missed + 1 - 0.9**2 - 0.1**2) / (1 + 0.8 + 0.1)
    assert found == pytest.approx([1, 1, 1 / (1 - 0.5 * missed / 1.8), 1 / (1 - 0.5 * last)])


def test_interval_by_hand():
    gain = np.array([[[0.01], [0.03], [0.02], [0.06]]])
    mean, low, high = predictive_interval(gain, relative=0.5)
    spread = math.sqrt(sum((g - 0.03) ** 2 for g in (0.01, 0.03, 0.02, 0.06)) / 3 * (1 + 1 / 4) + (0.5 * 0.03) ** 2)
    half = student.ppf(0.95, 3) * spread
    assert (mean.item(), low.item(), high.item()) == pytest.approx((0.03, 0.03 - half, 0.03 + half))


def test_the_interval_covers_one_more_world():
    rng = np.random.default_rng(0)
    draws = rng.normal(0.02, 0.01, (4000, 17, 1))
    _, low, high = predictive_interval(draws[:, :16], relative=0.0)
    inside = (low <= draws[:, 16]) & (draws[:, 16] <= high)
    assert inside.mean() == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 4000))  # four standard errors


def test_the_same_seed_gives_the_same_forecast():
    one, same, other = look(), look(), look(seed=9)
    for name in ("R@1", "MAP@R"):
        assert np.array_equal(one.curves[name].mean, same.curves[name].mean)
        assert one.curves[name].mean[0] == 0 and one.curves[name].low[0] == one.curves[name].high[0] == 0
        assert (one.curves[name].low <= one.curves[name].mean).all()
    assert not np.array_equal(one.curves["MAP@R"].mean, other.curves["MAP@R"].mean)
    assert one.k[-1] == 12 and one.corrected[-1] == pytest.approx(12 * 0.9)


def test_a_review_of_certain_labels_changes_nothing():
    x, given, candidates, rows, train = case(wrong=0.0)
    found = forecast_review(x, given, candidates, rows, train=train, test=~train, worlds=3, settings=SMALL)
    assert all((curve.mean == 0).all() and (curve.high == 0).all() for curve in found.curves.values())
    assert found.flat_at is None


def test_rows_that_are_not_trained_change_nothing():
    x, given, candidates, _, train = case()
    tested = (~train).nonzero()[:5, 0]
    found = forecast_review(x, given, candidates, tested, train=train, test=~train, worlds=3, settings=SMALL)
    assert all((curve.mean == 0).all() for curve in found.curves.values())


def test_names_of_classes_do_not_matter():
    x, given, candidates, rows, train = case()
    again = Candidates(candidates.label + 7, candidates.probability)
    one, other = (
        forecast_review(x, y, c, rows, train=train, test=~train, worlds=3, settings=SMALL)
        for y, c in ((given, candidates), (given + 7, again))
    )
    assert np.array_equal(one.curves["MAP@R"].mean, other.curves["MAP@R"].mean)


def test_where_the_curve_flattens():
    zero = np.zeros(4)
    curve = GainCurve(0.5, np.array([0, 0.05, 0.095, 0.1]), zero, zero)
    found = Forecast(np.array([0, 10, 20, 40]), zero, {"R@1": curve, "MAP@R": curve})
    assert found.flat_at == 20 and curve.at(found.k, 15)[0] == pytest.approx(0.0725)
    assert curve_points(100).tolist() == [0, 9, 26, 47, 72, 100] and curve_points(0).tolist() == [0]
    assert curve_points(2).tolist() == [0, 1, 2]


def test_too_little_data_has_a_reason():
    x, given, candidates, rows, train = case()
    few = train & (torch.arange(160) < 60)
    found = forecast_review(x, given, candidates, rows, train=few, test=~train, worlds=3)
    assert not found.curves and "training samples of 5 classes are too few" in found.reason
    none = forecast_review(x, given, candidates, rows[:0], train=train, test=~train, worlds=3)
    assert none.reason == "no label is suspect"
    queries = ~train & (torch.arange(160) > 100)
    assert "to search with are too few" in look(test=queries).reason


def some():
    """Rows 0 to 3 would become class 9; 4 would become 8; 5 and 6 are unsure, and copies of each other."""
    label = torch.tensor([[0, 9], [0, 9], [1, 9], [2, 9], [0, 8], [3, 8], [3, 8]])
    wrong = torch.tensor([0.9, 0.8, 0.7, 0.5, 0.95, 0.55, 0.55], dtype=torch.float64)
    return Candidates(label, torch.stack([1 - wrong, wrong], 1))


def rows_of(actions):
    return [one.rows for one in actions]


def test_effects_by_hand():
    found = label_effects(torch.tensor([4, 4, 4, 7, 7, 9]), torch.tensor([True, True, True, True, False, False]))
    # classes of 3 and 1 training samples: weights 1/3, 1/3, 1/3, 1, scaled to a mean of 1 over the four
    assert found.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2, 0, 0])
    assert label_effects(torch.tensor([1, 2]), torch.tensor([False, False])).tolist() == [0, 0]


def test_actions_by_hand():
    candidates, every = some(), torch.arange(7)
    gain = candidates.wrong
    single = make_actions(candidates, every, gain, by="single")
    assert rows_of(single) == [(4,), (0,), (1,), (2,), (5,), (6,), (3,)]
    pairs = make_actions(candidates, every, gain, by="pair")
    assert rows_of(pairs)[0] == (0, 1) and pairs[0].gain == pytest.approx(1.7) and pairs[0].cost == pytest.approx(1.3)
    groups = make_actions(candidates, every, gain, by="suggested", cluster=torch.tensor([0, 1, 2, 3, 4, 5, 5]))
    assert rows_of(groups) == [(0, 1, 2), (4,), (5, 6), (3,)]
    assert groups[0].suggested == 9 and groups[0].cost == pytest.approx(1 + 0.1 + 0.2 + 0.3)
    assert sorted(row for one in groups for row in one.rows) == list(range(7))


def test_large_groups_are_divided():
    candidates = Candidates(torch.tensor([[0, 1]]).repeat(7, 1), torch.tensor([[0.1, 0.9]]).repeat(7, 1))
    found = make_actions(candidates, torch.arange(7), candidates.wrong, max_size=3)
    assert sorted(len(one.rows) for one in found) == [1, 3, 3] and len({row for one in found for row in one.rows}) == 7


def test_the_order_of_rows_does_not_matter():
    candidates = some()
    one, other = (
        make_actions(candidates, torch.tensor(rows), candidates.wrong) for rows in ([0, 1, 2, 4], [4, 2, 1, 0])
    )
    assert one == other


def test_remaining_gain_and_number_of_decisions():
    actions = [Action((0, 1), 3, 0.6, 2.0), Action((2,), 3, 0.2, 1.0), Action((3,), 3, -0.5, 1.0)]
    assert remaining_gain(actions, 1) == pytest.approx(0.3) and remaining_gain(actions, 3) == pytest.approx(0.8)
    assert remaining_gain(actions, 10) == pytest.approx(0.8) and remaining_gain([], 5) == 0
    assert expected_decisions([0.9]) == 1 and expected_decisions([0.9, 0.7]) == pytest.approx(1.4)
