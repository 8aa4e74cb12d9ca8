"""Tests of pairs, Holm's correction, ranks: by hand, against scipy and printed tables, and right as often as they say."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import stdtr

from likewise.numerics import significance
from likewise.numerics.significance import (
    MethodComparison,
    agreement,
    blocked_t,
    cliques,
    critical_difference,
    friedman,
    holm,
    mean_ranks,
    sign_flip,
)
from likewise.types import LikewiseError


def flips_by_hand(difference):
    """Every choice of signs, one at a time."""
    seen = abs(sum(difference))
    every = [
        abs(sum(s * d for s, d in zip(signs, difference)))
        for signs in itertools.product((1, -1), repeat=len(difference))
    ]
    return sum(one >= seen - 1e-9 for one in every) / len(every)


def ranks_by_hand(values):
    """How many are better, and half of the others that are as good."""
    return [[1 + sum(v > own for v in unit) + (sum(v == own for v in unit) - 1) / 2 for own in unit] for unit in values]


def two(a, b):
    return float(blocked_t(np.stack([a, b], 1))[0, 1])


def test_blocked_t_of_two_is_the_test_for_pairs_by_hand():
    gain = [1.0, 2.0, 4.0, 5.0]
    t = 3 * 4**0.5 / ((4 + 1 + 1 + 4) / 3) ** 0.5
    density = lambda x: (1 + x * x / 3) ** -2 * 2 / (math.pi * 3**0.5)  # noqa: E731 - Student's, 3 degrees of freedom
    step = 1e-3
    inside = sum(density(-t + (i + 0.5) * step) * step for i in range(round(2 * t / step)))
    a = np.array([0.5, 0.25, 7.0, 1.0])
    assert two(a, a + gain) == pytest.approx(1 - inside, abs=1e-3)
    assert two(a + gain, a) == pytest.approx(two(a, a + gain))


@pytest.mark.parity
def test_blocked_t_of_two_as_scipy():
    from scipy import stats

    a, b = np.random.default_rng(0).normal(size=(2, 5))
    assert two(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue)


@pytest.mark.parity
def test_blocked_t_pools_what_seeds_and_methods_leave_over():
    from scipy import stats

    values = np.random.default_rng(1).normal(size=(3, 4)) + np.array([0, 0.5, 1, 4]) + np.array([[0], [9], [-3]])
    left = [
        values[s, m] - sum(values[s]) / 4 - sum(values[:, m]) / 3 + values.sum() / 12
        for s in range(3)
        for m in range(4)
    ]
    v = sum(one * one for one in left) / 6
    found = blocked_t(values)
    for i, j in itertools.combinations(range(4), 2):
        t = (values[:, j].mean() - values[:, i].mean()) * (3 / (2 * v)) ** 0.5
        assert found[i, j] == found[j, i] == pytest.approx(2 * stats.t.sf(abs(t), 6))


def test_blocked_t_takes_the_seeds_that_both_have():
    values = np.random.default_rng(2).normal(size=(5, 3))
    values[3:, 1] = np.nan
    values[0, 2] = np.nan
    found = blocked_t(values)
    design = [[*(s == k for k in range(5)), *(m == k for k in range(3))] for s in range(5) for m in range(3)]
    known = [k for k, value in enumerate(values.ravel()) if not math.isnan(value)]
    x, y = np.array(design, float)[known], values.ravel()[known]
    left = ((y - x @ np.linalg.pinv(x) @ y) ** 2).sum() / (12 - 7)
    t = (values[1:3, 2] - values[1:3, 1]).mean() * (2 / (2 * left)) ** 0.5
    assert found[1, 2] == pytest.approx(2 * float(stdtr(5, -abs(t))))
    values[:2, 1] = np.nan
    assert np.isnan(blocked_t(values)[0, 1])  # one in common


def test_blocked_t_where_nothing_varies():
    a = np.array([0.1, 0.2, 0.3])
    assert two(a, a) == 1 and math.isnan(two(a, a + 0.1))
    assert math.isnan(two(a[:1], a[1:2])) and math.isnan(two(a[:0], a[:0]))


def test_blocked_t_is_not_sure_by_coincidence():
    """Two seeds and 96 queries: one time in 25 both differ by the same number of answers, though nobody is better."""
    rng = np.random.default_rng(0)
    p = np.array([two(*rng.binomial(96, 0.3, (2, 2)) / 96) for _ in range(2000)])
    assert np.isnan(p).sum() > 40 and (p < 0.05).mean() < 0.05 and np.nanmin(p) > 1e-3


def test_blocked_t_says_what_it_should_when_nobody_is_better():
    """Holm over all pairs of 8 methods with 3 seeds: a wrong verdict in 5 % of the tables at most, and power."""
    rng, pairs = np.random.default_rng(3), np.triu_indices(8, 1)
    null = [holm(blocked_t(rng.normal(size=(3, 8)) + rng.normal(size=(3, 1)))[pairs]).min() for _ in range(400)]
    assert np.mean(np.array(null) < 0.05) < 0.05 + 2 * (0.05 * 0.95 / 400) ** 0.5
    better = [blocked_t(rng.normal(size=(3, 8)) + 6 * (np.arange(8) == 0))[0, 1] for _ in range(50)]
    assert np.mean(np.array(better) < 0.05 / 28) > 0.8


@pytest.mark.parametrize("difference", [[0.3], [1, 1, 1], [0, 0], [1, -1, 0.5, 0.25], [3, 1, 4, -1, 5, 9, -2, 6]])
def test_sign_flip_tries_every_choice_where_there_are_few(difference):
    assert sign_flip(np.array(difference, float)) == pytest.approx(flips_by_hand(difference))


def test_sign_flip_by_chance_comes_near_and_is_never_zero(monkeypatch):
    difference = np.random.default_rng(0).normal(0.4, 1, 12)
    monkeypatch.setattr(significance, "SIGN_BLOCK_SIZE", 100)
    exact, drawn = sign_flip(difference, resamples=4096), sign_flip(difference, resamples=4095, seed=1)
    assert exact == pytest.approx(flips_by_hand(difference)) and exact != drawn
    assert drawn == pytest.approx(exact, abs=4 * (exact / 4095) ** 0.5)
    assert sign_flip(np.ones(40), resamples=99) == pytest.approx(1 / 100)


def test_sign_flip_of_columns_is_that_of_each():
    table = np.random.default_rng(0).normal(0.2, 1, (30, 3))
    assert sign_flip(table, 500, 3).tolist() == [sign_flip(column.copy(), 500, 3) for column in table.T]


def test_holm_by_hand():
    p = [
        0.01,
        0.04,
        math.nan,
        0.03,
        0.005,
    ]  # of four: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 * 1 is not below the last
    assert holm(np.array(p)) == pytest.approx([0.03, 0.06, math.nan, 0.06, 0.02], nan_ok=True)
    assert holm(np.array([0.5, 0.9])).tolist() == [1, 1] and len(holm(np.array([]))) == 0


def test_holm_keeps_the_error_of_the_family():
    """20 tests in which nothing is to be found, and dependent ones: any false alarm in at most 5 % of 2,000 families."""
    from scipy.special import ndtr

    rng = np.random.default_rng(0)
    shared = rng.normal(size=(2000, 1))
    for mix in (0, 0.7):
        p = 2 * ndtr(-np.abs(mix * shared + (1 - mix**2) ** 0.5 * rng.normal(size=(2000, 20))))
        assert (p < 0.05).any(1).mean() > 0.2
        assert np.mean([(holm(row) < 0.05).any() for row in p]) < 0.05 + 3 * (0.05 * 0.95 / 2000) ** 0.5


VALUES = [[0.9, 0.8, 0.8, 0.1], [0.5, 0.5, 0.5, 0.5], [0.2, 0.6, 0.4, 0.3], [0.7, 0.9, 0.1, 0.1], [0.3, 0.4, 0.2, 0.1]]


def test_mean_ranks_by_hand():
    found = mean_ranks(np.array([*VALUES, [0.1, math.nan, 0.1, 0.1]]))
    assert found.mean == pytest.approx([sum(column) / 5 for column in zip(*ranks_by_hand(VALUES))])
    assert (found.units, found.dropped) == (5, 1)


@pytest.mark.parity
@pytest.mark.parametrize("ties", [False, True])
def test_friedman_as_scipy(ties):
    from scipy import stats

    values = np.array(VALUES) if ties else np.random.default_rng(0).random((9, 5)) + np.arange(5) / 9
    assert friedman(values) == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
    assert friedman(np.ones((4, 3))) == 1 == friedman(np.ones((4, 1)))


@pytest.mark.parametrize(
    ("methods", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (10, 3.164)]
)
def test_critical_differences_as_printed(methods, q):
    """Demsar 2006, table 5a, for a level of 0.95."""
    assert critical_difference(methods, 14) / (methods * (methods + 1) / 84) ** 0.5 == pytest.approx(q, abs=1e-3)


def test_critical_difference_of_the_papers_example():
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)
    assert critical_difference(4, 14, 0.9) == pytest.approx(1.12, abs=5e-3)


def test_cliques_are_the_largest_groups():
    ranks = np.array([3.0, 1.0, 1.5, 2.2, 5.0])
    assert cliques(ranks, 1.3) == [(1, 2, 3), (3, 0)]
    assert cliques(ranks, 0.1) == [] and cliques(ranks, 9.0) == [(1, 2, 3, 0, 4)]
    assert cliques(np.array([1.0, 2.0]), 1.0) == []  # as far apart as the critical difference is told apart
    found = MethodComparison("R@1", 9, 0, 3, (), dict(zip("abc", (1.0, 1.5, 3.0))), 0.1, 1.0)
    assert found.groups == [("a", "b")]


def test_agreement_by_hand():
    ours, printed = [1.0, 2.0, 3.0, 4.0, math.nan, 2.5], [10.0, 30.0, 20.0, 30.0, 5.0, 40.0]
    kept = [(a, b) for a, b in zip(ours, printed) if not math.isnan(a)]
    signs = [(np.sign(a - c), np.sign(b - d)) for (a, b), (c, d) in itertools.combinations(kept, 2)]
    below = math.sqrt(sum(a != 0 for a, _ in signs) * sum(b != 0 for _, b in signs))
    found = agreement(ours, printed)
    assert found.tau == pytest.approx(sum(a * b for a, b in signs) / below) and (found.n, found.note) == (5, "")


def test_the_p_of_an_agreement_counts_all_orders():
    ours, printed = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 3.0, 2.0, 4.0, 6.0, 5.0]
    every = [agreement(ours, list(order)).tau for order in itertools.permutations(printed)]
    found = agreement(ours, printed)
    assert found.p == pytest.approx(sum(abs(tau) >= found.tau - 1e-9 for tau in every) / 720)


def test_few_methods_cannot_agree_much():
    found = agreement([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert found.tau == pytest.approx(1) and found.p > 0.3 and found.note.startswith("3 methods are too few")
    assert math.isnan(agreement([1.0], [2.0]).tau)
    assert agreement([1.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]).note == "all values of one side are the same"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: blocked_t(np.array([[1, 2], [3, np.inf]])), "blocked_t: values must be seeds by methods, finite or NaN"),
        (lambda: sign_flip(np.array([1.0, np.nan])), r"sign_flip: difference must be finite.*\(2,\) with 1 values not"),
        (lambda: sign_flip(np.ones((0, 2))), "sign_flip: difference must be finite, one unit or more"),
        (lambda: mean_ranks(np.full((2, 2), np.nan)), "mean_ranks: values must be units by methods .*0 such units; use"),
        (lambda: critical_difference(1, 5), "critical_difference: methods must be 2 or more, .* got 1, 5 and 0.95"),
    ],
)  # fmt: skip
def test_bad_input_is_named(ask, said):
    with pytest.raises(LikewiseError, match=said):
        ask()
