"""Intervals: by hand, against tables and scipy, and right as often as they say."""

import numpy as np
import pytest

from likewise.numerics import bootstrap as intervals
from likewise.numerics.bootstrap import bootstrap, paired, t_interval
from likewise.types import LikewiseError


def draws_by_hand(value, unit, resamples, seed, balanced=False):
    """One draw after another: pick units, lay all their rows side by side, take the mean."""
    rng, units = np.random.default_rng(seed), sorted(set(unit))
    means = []
    for _ in range(resamples):
        picked = [units[i] for i in rng.integers(len(units), size=len(units))]
        rows = [[v for v, u in zip(value, unit, strict=True) if u == p] for p in picked]
        if balanced:
            means.append(sum(sum(r) / len(r) for r in rows) / len(rows))
        else:
            means.append(sum(map(sum, rows)) / sum(map(len, rows)))
    return means


def test_t_interval_by_hand():
    found = t_interval([1.0, 2.0, 4.0, 5.0])
    s = ((4 + 1 + 1 + 4) / 3) ** 0.5
    assert found.mean == 3 and found.n == 4
    assert found.high - 3 == pytest.approx(3.182446 * s / 2, abs=1e-5)  # t_{0.975, 3} of the printed tables
    assert 3 - found.low == pytest.approx(found.high - 3)


@pytest.mark.parity
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_t_interval_as_scipy(level):
    from scipy import stats

    values = np.random.default_rng(0).normal(size=7)
    low, high = stats.t.interval(level, 6, values.mean(), stats.sem(values))
    assert t_interval(values, level)[1:3] == pytest.approx((low, high))


def test_one_repetition_cannot_tell():
    found = t_interval([0.7])
    assert found.mean == 0.7 and found.n == 1
    assert np.isnan(found.low) and np.isnan(found.high)


@pytest.mark.parametrize("values", [[], [1.0, np.nan], [np.inf, 1.0], [[1.0, 2.0]]])
def test_t_interval_refuses_what_is_no_line_of_numbers(values):
    with pytest.raises(LikewiseError, match="t_interval: values must be a vector of one finite number or more, got"):
        t_interval(values)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("block", [1, 37, 1 << 17])
def test_the_draws_are_those_of_a_plain_loop(balanced, block, monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLE_BLOCK_SIZE", block)  # however they are cut into blocks
    rng = np.random.default_rng(1)
    unit = rng.choice([3, 7, 8, 20, 21], 30, p=[0.5, 0.2, 0.1, 0.1, 0.1])
    value = rng.normal(size=(30, 2)) + 0.1 * unit[:, None]
    found = bootstrap(value, unit, balanced=balanced, resamples=150, seed=5)
    for column in range(2):
        means = draws_by_hand(value[:, column], unit, 150, 5, balanced)
        low, high = np.quantile(means, [0.025, 0.975])
        other = min(sum(m <= 0 for m in means), sum(m >= 0 for m in means))
        assert found.low[column] == pytest.approx(low) and found.high[column] == pytest.approx(high)
        assert found.crossing[column] == pytest.approx(min(1, 2 * (1 + other) / 151))
    groups = [value[unit == u] for u in np.unique(unit)]
    mean = np.mean([g.mean(0) for g in groups], 0) if balanced else value.mean(0)
    assert found.mean == pytest.approx(mean)
    assert found.n == len(groups) and found.few


def test_rows_are_units_of_their_own_where_none_are_given():
    value = np.random.default_rng(0).normal(size=25)
    found, alone = bootstrap(value, resamples=200), bootstrap(value, np.arange(25), resamples=200)
    means = draws_by_hand(value, range(25), 200, 0)
    assert found == alone
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))
    assert found.n == 25 and not found.few


@pytest.mark.parity
def test_bootstrap_as_scipy():
    from scipy import stats

    value = np.random.default_rng(0).exponential(size=80)
    how = {"n_resamples": 20000, "method": "percentile", "random_state": 1}
    other = stats.bootstrap((value,), np.mean, **how).confidence_interval
    found = bootstrap(value, resamples=20000)
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=0.01)


def test_rows_with_nothing_to_find_are_left_out_and_counted():
    rng = np.random.default_rng(0)
    value, unit = rng.normal(size=(40, 3)), np.arange(40) % 12
    holes = value.copy()
    holes[[3, 8], 1] = np.nan
    kept = np.setdiff1d(np.arange(40), [3, 8])
    found, want = bootstrap(holes, unit), bootstrap(value[kept], unit[kept])
    assert found.dropped == 2 and want.dropped == 0
    assert np.array_equal([found.low, found.high], [want.low, want.high])


def test_it_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    sets = rng.exponential(size=(400, 60))
    hits = [(found := bootstrap(v, resamples=500, seed=i)).low <= 1 <= found.high for i, v in enumerate(sets)]
    assert 0.90 <= np.mean(hits) <= 0.98


def test_classes_cover_the_truth_where_single_queries_do_not():
    """Queries of a class agree, so there are fewer facts than rows: the truth is the mean over other classes."""
    rng, unit = np.random.default_rng(0), np.repeat(np.arange(40), 8)
    hits = {"rows": 0, "classes": 0}
    for seed in range(200):
        value = rng.normal(size=40)[unit] + 0.3 * rng.normal(size=320)
        for name, units in (("rows", None), ("classes", unit)):
            found = bootstrap(value, units, resamples=400, seed=seed)
            hits[name] += found.low <= 0 <= found.high
    assert hits["classes"] / 200 >= 0.88
    assert hits["rows"] / 200 <= 0.70


def test_a_balanced_mean_counts_classes_not_rows():
    value, unit = np.array([1.0] * 90 + [0.0] * 10), np.repeat([0, 1], [90, 10])
    assert bootstrap(value, unit).mean == pytest.approx(0.9)
    assert bootstrap(value, unit, balanced=True).mean == pytest.approx(0.5)


def test_one_unit_cannot_tell():
    found = bootstrap(np.array([1.0, 2.0, 3.0]), np.zeros(3, int))
    assert found.mean == 2 and found.n == 1 and found.few
    assert np.isnan([found.low, found.high, found.crossing]).all()


def test_pairs_cancel_what_is_hard_for_both():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(200, 2))
    b = a + 0.1 + 0.05 * rng.normal(size=(200, 2))
    found = paired(a, b)
    assert found.mean == pytest.approx((b - a).mean(0))
    assert (found.low > 0.08).all() and (found.high < 0.12).all()
    assert (bootstrap(b).high - bootstrap(b).low > 10 * (found.high - found.low)).all()
    back = paired(b, a)
    assert back.low == pytest.approx(-found.high, abs=1e-12)
    assert found.crossing == pytest.approx(2 / 2001) and back.crossing == pytest.approx(2 / 2001)  # never 0


def test_no_difference_crosses_zero_for_certain():
    a = np.random.default_rng(0).normal(size=50)
    found = paired(a, a)
    assert (found.low, found.high, found.crossing) == (0, 0, 1)


def test_bad_input_is_named(unchecked):
    line = np.arange(20.0)
    for work, says in [
        (lambda: bootstrap(line, resamples=99), "bootstrap: resamples must be 100 or more, got 99"),
        (lambda: bootstrap(line, level=95), "intervals: level must lie between 0 and 1, got 95"),
        (lambda: t_interval(line, level=1), "intervals: level must lie between 0 and 1, got 1"),
        (lambda: bootstrap(line, np.zeros(3, int)), r"unit \(rows,\), got \(20,\) and \(3,\)"),
        (lambda: bootstrap(line * np.nan), "got 0 rows of 20 without NaN"),
        (lambda: bootstrap(np.append(line, np.inf)), "1 infinite values"),
        (lambda: bootstrap(np.zeros((0, 2))), "got 0 rows of 0 without NaN"),
        (lambda: paired(line, line[1:]), r"paired: a and b must have the same shape, got \(20,\) and \(19,\)"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            work()
