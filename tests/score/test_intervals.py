"""Intervals: by hand, as other formulas and libraries have them, right as often as they say, or with a reason."""

import math
from itertools import combinations

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.score.intervals import (
    blame,
    gallery_variance,
    mean_interval,
    paired_interval,
    ratio_intervals,
    t_interval,
)

SIZES = [3, 8, 5, 12, 4, 9, 6, 7, 10, 5, 8, 6]
"""Queries of twelve uneven classes."""

LABEL = np.repeat(np.arange(12), SIZES)


def some_values(seed=0):
    rng = np.random.default_rng(seed)
    return np.clip(rng.random(12)[LABEL] + 0.3 * rng.normal(size=len(LABEL)), 0, 1)


def by_matrices(value, label):
    """The variance (CR2) and its degrees of freedom with matrices: the adjusted residuals of each class, and traces."""
    size, names = len(value), np.unique(label)
    hat = np.full((size, size), 1 / size)
    residual = value - value.mean()
    variance, forms = 0.0, []
    for name in names:
        own = label == name
        root, basis = np.linalg.eigh(np.eye(own.sum()) - hat[np.ix_(own, own)])
        adjusted = basis @ np.diag(root**-0.5) @ basis.T
        part = adjusted @ residual[own]
        variance += part.sum() ** 2 / size**2
        whole = np.zeros(size)
        whole[own] = adjusted.sum(0) / size
        forms.append((np.eye(size) - hat) @ whole)
    same = (label[:, None] == label).astype(float)  # classes vary, their queries do not
    gram = np.array(forms) @ same @ np.array(forms).T
    return variance, np.trace(gram) ** 2 / np.trace(gram @ gram)


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
    with pytest.raises(LikewiseError, match="t_interval: values must be a vector"):
        t_interval(values)


def test_the_variance_and_the_freedom_are_those_of_the_matrices():
    from scipy.special import stdtrit

    value = some_values() - 0.4
    variance, freedom = by_matrices(value, LABEL)
    found = mean_interval(value, LABEL, share=False)
    assert found.freedom == pytest.approx(freedom) and found.n == 12 and found.reason == ""
    reach = stdtrit(freedom, 0.975) * math.sqrt(variance)
    assert (found.low, found.high) == pytest.approx((value.mean() - reach, value.mean() + reach))


@pytest.mark.parity
def test_equal_classes_are_a_t_test_of_their_means():
    from scipy import stats

    value = np.random.default_rng(0).normal(0.3, 1, 60)
    label = np.arange(60) % 15
    means = [value[label == c].mean() for c in range(15)]
    found, test = mean_interval(value, label, share=False), stats.ttest_1samp(means, 0)
    ends = test.confidence_interval()
    assert (found.low, found.high, found.p) == pytest.approx((ends.low, ends.high, test.pvalue))
    assert found.freedom == pytest.approx(14)


def test_a_share_has_its_interval_in_log_odds():
    value = some_values()
    plain, share = (mean_interval(value, LABEL, share=one) for one in (False, True))
    m = value.mean()
    log_odds, reach = math.log(m / (1 - m)), (plain.high - m) / (m * (1 - m))
    for end, sign in ((share.low, -1), (share.high, 1)):
        assert end == pytest.approx(1 / (1 + math.exp(-(log_odds + sign * reach))))
    found = mean_interval(value, LABEL)  # all values lie between 0 and 1
    assert math.isnan(share.p) and (found.low, found.high) == (share.low, share.high)
    assert mean_interval(2 * value, LABEL).low == pytest.approx(2 * plain.low)


@pytest.mark.parity
def test_the_spread_is_that_of_resampled_classes():
    """Percentiles of resampled classes are narrower by about t / 1.96 sqrt(12 / 11) = 1.17 here, and rather more if uneven."""
    from scipy import stats

    value = some_values(3) - 0.5

    def mean(place):
        rows = np.concatenate([np.flatnonzero(c == LABEL) for c in place])
        return value[rows].mean()

    drawn = stats.bootstrap(
        (np.arange(12),), mean, vectorized=False, n_resamples=4000, method="percentile", random_state=0
    ).confidence_interval
    found = mean_interval(value, LABEL, share=False)
    assert 1.1 < (found.high - found.low) / (drawn.high - drawn.low) < 1.4


def test_the_gallery_by_hand():
    rng = np.random.default_rng(1)
    label, rival = rng.integers(0, 6, 80), rng.integers(-1, 8, 80)
    rival = np.where(rival == label, -1, rival)
    taken = rng.normal(size=80)
    names, there = range(8), rival >= 0
    x, n = taken[there].sum() / 80, [int((label == c).sum()) for c in names]
    e = {(c, d): taken[(label == c) & (rival == d)].sum() - x * n[c] / 7 for c in names for d in names if c != d}
    o = [taken[label == c].sum() - taken.mean() * n[c] for c in names]
    b = [sum(e[c, d] for c in names if c != d) for d in names]
    total = sum(2 * o[c] * b[c] + b[c] ** 2 for c in names) - sum(
        (e[c, d] + e[d, c]) ** 2 for c, d in combinations(names, 2)
    )
    assert gallery_variance(taken, label, rival) == pytest.approx(total / 80**2)
    assert gallery_variance(taken, np.zeros(80, int), np.full(80, -1)) == 0


def test_a_rival_is_blamed_for_as_much_as_its_absence_could_mend():
    assert blame(np.array([1.0, 0.5, 0.0]), True).tolist() == [0.0, -0.5, -1.0]
    low = np.array([0.2, 0.0, 0.0, 0.0])
    assert blame(low, True) == pytest.approx((low - 1) * (0.05 * 3) ** 2)
    assert blame(low - 0.1, False).tolist() == (low - 0.1).tolist()


def test_one_rival_of_all_queries_does_not_widen_the_interval_of_a_network_without_skill():
    """One hit in 40, and class 0 is the nearest wrong result of nearly all: without it another wrong class would come first."""
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(60), 20)
    value, rival = (rng.random(len(label)) < 1 / 40).astype(float), np.where(label == 0, 1, 0)
    plain, found = mean_interval(value, label), mean_interval(value, label, rival)
    assert 1 <= (found.high - found.low) / (plain.high - plain.low) < 3
    full = ratio_intervals(
        np.bincount(label, value)[None], np.bincount(label)[None] * 1.0, share=True,
        gallery=np.array([gallery_variance(value - 1, label, rival)]),
    )  # fmt: skip
    assert (full.high[0] - full.low[0]) > 10 * (found.high - found.low)


def test_a_gallery_never_narrows_the_interval():
    value = some_values()
    rng = np.random.default_rng(0)
    rivals = [(LABEL + rng.integers(1, 12, len(LABEL))) % 12 for _ in range(20)]
    plain = mean_interval(value, LABEL)
    widths = [(found := mean_interval(value, LABEL, rival)).high - found.low for rival in rivals]
    assert min(widths) >= plain.high - plain.low - 1e-12 and max(widths) > 1.01 * (plain.high - plain.low)


def test_the_gallery_of_a_difference_adds_some_variance_at_least():
    """Rivals that confuse nobody back: classes 12 to 23 have no queries, each is the rival of one class."""
    value = some_values() - 0.4
    plain, found = mean_interval(value, LABEL, share=False), mean_interval(value, LABEL, LABEL + 12, share=False)
    assert (found.high - found.low) / (plain.high - plain.low) >= math.sqrt(1.15) - 1e-12


def test_a_change_is_due_to_the_rival_of_the_worse_side():
    rng = np.random.default_rng(2)
    a, b = rng.random((2, len(LABEL)))
    rivals = tuple((LABEL + rng.integers(1, 12, (2, len(LABEL)))) % 12)
    worse = np.array([one if new > old else other for old, new, one, other in zip(a, b, *rivals)])
    assert paired_interval(a, b, LABEL, rivals) == mean_interval(b - a, LABEL, worse, share=False)
    back = paired_interval(b, a, LABEL, rivals[::-1])
    found = paired_interval(a, b, LABEL, rivals)
    assert (back.low, back.high, back.p) == pytest.approx((-found.high, -found.low, found.p))


def test_many_means_at_once_are_those_one_by_one():
    rng = np.random.default_rng(0)
    total, count = rng.random((3, 2, 12)), np.asarray(SIZES, float)
    found = ratio_intervals(total, np.broadcast_to(count, total.shape), share=False)
    for place in np.ndindex(3, 2):
        value = np.repeat(total[place] / count, SIZES)
        assert found.low[place] == pytest.approx(mean_interval(value, LABEL, share=False).low)


def test_p_and_interval_agree():
    rng = np.random.default_rng(0)
    total = rng.normal(0.5, 1, (200, 12))
    for level in (0.8, 0.95):
        found = ratio_intervals(total, np.ones((200, 12)), share=False, level=level)
        outside = (found.low > 0) | (found.high < 0)
        assert np.array_equal(outside, found.p < 1 - level) and 0 < outside.mean() < 1


def test_queries_are_units_of_their_own_where_none_are_given():
    value = np.random.default_rng(0).normal(size=25)
    found, want = mean_interval(value), t_interval(value)
    assert (found.low, found.high) == pytest.approx((want.low, want.high)) and found.n == 25


def test_queries_with_nothing_to_find_are_left_out():
    value = some_values()
    holes = np.insert(value, [3, 20], np.nan)
    label = np.insert(LABEL, [3, 20], [0, 3])
    assert mean_interval(holes, label, share=False) == mean_interval(value, LABEL, share=False)


def test_no_interval_without_what_it_needs():
    rng = np.random.default_rng(0)
    half = rng.random(100)
    big = np.concatenate([np.zeros(80, int), 1 + np.arange(20) // 2])
    right = np.concatenate([np.ones(99), [0.0]])
    few = np.concatenate([np.full(4, 0.5), np.zeros(96)])
    for found, says in [
        (mean_interval(half, np.arange(100) // 20), "there are 5 classes, and 10 are needed"),
        (mean_interval(half[:9]), "there are 9 queries, and 10 are needed"),
        (mean_interval(np.ones(100), np.arange(100) // 5), "all classes have the same mean"),
        (
            mean_interval(half, big),
            "a few large classes decide: the 11 classes are worth 2.1 of equal size, and 6 are needed",
        ),
        (mean_interval(right, np.arange(100) // 5), "the errors are those of less than one of 20 classes"),
        (mean_interval(1 - right, np.arange(100) // 5), "the hits are those of less than one of 20 classes"),
        (paired_interval(few * 0, few), r"too few queries changed (4 of 100)"),
        (paired_interval(half, half), "all queries have the same mean"),
    ]:
        assert found.reason.startswith(says) and np.isnan([found.low, found.high, found.p]).all()
        assert not math.isnan(found.mean)


def test_it_holds_the_truth_as_often_as_it_says():
    """2,000 sets in each world; the standard error of a coverage of 0.95 is 0.005. Other worlds: benchmarks/coverage.py."""
    rng = np.random.default_rng(0)
    for classes, sizes in ((10, [12]), (20, [6, 20]), (50, [2, 3, 5, 10, 60])):
        count = rng.choice(sizes, (2000, classes))
        total = rng.binomial(count, rng.beta(3.5, 1.5, count.shape)).astype(float)
        found = ratio_intervals(total, count.astype(float), share=True)
        holds = ((found.low <= 0.7) & (found.high >= 0.7))[found.why == 0]
        assert len(holds) > 1900 and 0.935 <= holds.mean() <= 0.975


def test_pairs_cancel_what_is_hard_for_both():
    rng = np.random.default_rng(0)
    a = rng.normal(size=200)
    b = a + 0.1 + 0.05 * rng.normal(size=200)
    found = paired_interval(a, b)
    assert found.mean == pytest.approx((b - a).mean()) and 0.08 < found.low < found.high < 0.12
    alone = mean_interval(b)
    assert alone.high - alone.low > 10 * (found.high - found.low)


def test_bad_input_is_named(unchecked):
    line = np.arange(20.0)
    for work, says in [
        (lambda: mean_interval(line * np.nan), "got 0 of 20 without NaN"),
        (lambda: mean_interval(np.append(line, np.inf)), "1 infinite"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            work()
