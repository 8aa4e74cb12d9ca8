"""Significance tests for many methods, agreement of orders, and correlation of two variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri, stdtr, stdtrit

EQUALITY_TOLERANCE = 1e-12
"""Differences up to this share of the compared values are rounding."""

MIN_METHODS = 4
"""Minimum number of methods for a meaningful comparison of two orders."""

PerContest = float | Float[np.ndarray, "*B"]
"""One value, or one for each of several contests."""


class Agreement(NamedTuple):
    """How far two orders of the same methods agree: Kendall's tau-b (1: the same order, -1: reversed)."""

    tau: float
    p: float
    n: int
    note: str


class Differences(NamedTuple):
    """Differences b - a between all pairs of methods, in the order of `itertools.combinations`.

    Each has its interval (95 % or more), and the two-sided p of "equally good over other classes and other trainings", not
    corrected for the number of pairs. NaN: not tested, because the pair has fewer than two seeds in common, or nothing varies.
    """

    mean: Float[np.ndarray, "*B P"]
    low: Float[np.ndarray, "*B P"]
    high: Float[np.ndarray, "*B P"]
    p: Float[np.ndarray, "*B P"]
    seeds: Int[np.ndarray, "P"]


@dataclass(frozen=True)
class PairTest:
    """Two methods in one column of a table: b - a, its interval (95 % or more) over classes and trainings, and p.

    All values use the `seeds` seeds that both methods have. p is corrected by Holm for all pairs of the column; NaN: not tested.
    """

    column: str
    a: str
    b: str
    difference: float
    low: float
    high: float
    p: float
    seeds: int
    outcome: str

    @property
    def is_significant(self) -> bool:
        """Whether one method is significantly better."""
        return self.outcome in ("better", "worse")


@dataclass(frozen=True)
class MethodComparison:
    """Several methods on the same queries: tests of all pairs in every column, and of their means over all columns.

    `mean` has the methods that all columns have, the best first; `overall` tests their pairs.
    """

    metric: str
    queries: int
    unscored: int
    classes: int
    pairs: tuple[PairTest, ...]
    mean: dict[str, float]
    overall: tuple[PairTest, ...]

    @property
    def untested(self) -> str:
        """Return why the means of the methods are not tested against each other; "" if they are."""
        if len(self.mean) < 2:
            return "fewer than two methods are in all columns"
        if self.classes < 2:
            return "there is only one test class"
        lacking = dict.fromkeys(name for pair in self.overall if pair.seeds < 2 for name in (pair.a, pair.b))
        return (
            f"two seeds or more in common are needed, and are missing between {', '.join(lacking)}" if lacking else ""
        )


def compare_pairs(total: Float[np.ndarray, "*B C S M"], size: Int[np.ndarray, "*B C"]) -> Differences:
    """Test all pairs of methods over classes and seeds at once: both are samples, of other classes and of other trainings.

    A test over classes alone takes the luck of these trainings for a property of the methods, and one over seeds alone that of
    these classes. Here both variances are in the standard error, as in studies in which several readers see the same cases.
    Variance over seeds: that of the pair's own differences, or that of all methods, if it is larger: three seeds of a pair alone
    are a poor estimate, and other methods may vary less. Its degrees of freedom are fewer if the methods vary unequally.

    Formula: t = d / sqrt(V), V = max(V_s, V_cs) + max(V_c - V_cs, 0), d = mean over queries and seeds of b - a;
        V_s = max(s^2, 2 r^2) / S: s^2 the variance of the seeds' differences, r^2 the mean square left by
        value = method + seed; V_c = (C - 1) / C sum_c (n d - t_c)^2 / (N - n)^2: the jackknife over classes of n queries with the
        summed difference t_c; V_cs the same of the seeds' deviations, / (S (S - 1)).
        Degrees of freedom: V / (V_s / f_s + max(V_c, V_cs) / f_c), f_c = (sum n^2)^2 / sum n^4 - 1. Satterthwaite's formula,
        with squares of the variances, rejects too often where one of them has few degrees of freedom and is small by chance.
    Paper: Hillis, A comparison of denominator degrees of freedom methods for multiple observer ROC analysis, Stat. Med. 2007,
        for two random factors. Differs: the larger of two variances over seeds, and classes of unequal size.

    Args:
        total: the metric, summed over the queries of each class; NaN: no training.
        size: number of queries of each class. Leading axes are independent contests (with the same trainings missing).
    """
    value = total.sum(-3) / size.sum(-1)[..., None, None]
    spread = _residual_variance(value)
    found = [
        _compare_pair(total[..., b] - total[..., a], value[..., b] - value[..., a], size, *spread)
        for a, b in combinations(range(total.shape[-1]), 2)
    ]
    if not found:
        none = np.zeros((*total.shape[:-3], 0))
        return Differences(none, none, none, none, np.zeros(0, int))
    *columns, seeds = zip(*found)
    return Differences(*(np.stack(column, -1) for column in columns), np.array(seeds))  # pyright: ignore[reportCallIssue]


def _compare_pair(
    gain: Float[np.ndarray, "*B C S"],
    each: Float[np.ndarray, "*B S"],
    size: Int[np.ndarray, "*B C"],
    common: PerContest,
    common_freedom: PerContest,
) -> tuple[Any, Any, Any, Any, int]:
    """Return mean, ends of the interval, p and number of seeds of one pair.

    Args:
        gain: differences summed over the queries of each class.
        each: mean difference of every seed.
        common: variance of a training that all methods share, and its degrees of freedom.
    """
    kept = ~np.isnan(each.reshape(-1, each.shape[-1])).any(0)
    gain, each, classes, seeds = gain[..., kept], each[..., kept], gain.shape[-2], int(kept.sum())
    if seeds < 2 or classes < 2:
        none = np.full(each.shape[:-1], np.nan)
        return each.mean(-1) if seeds else none, none, none, none, seeds
    mean, rest = each.mean(-1), size.sum(-1, keepdims=True) - size
    moved = (gain - size[..., None] * each[..., None, :]) / rest[..., None]  # by a class that is left out
    centre, factor, square = moved.mean(-1, keepdims=True), (classes - 1) / classes, size.astype(np.float64) ** 2
    of_both = factor * ((moved - centre) ** 2).sum((-2, -1)) / (seeds * (seeds - 1))
    of_seeds = np.maximum(np.maximum(each.var(-1, ddof=1), 2 * common) / seeds, of_both)
    of_classes = np.maximum(factor * (centre**2).sum((-2, -1)), of_both)
    class_freedom = square.sum(-1) ** 2 / (square**2).sum(-1) - 1
    variance = of_seeds + of_classes - of_both
    with np.errstate(divide="ignore", invalid="ignore"):  # without any variance there is no test
        parts = of_seeds / np.maximum(common_freedom, seeds - 1) + of_classes / class_freedom
        freedom = np.maximum(variance / parts, 1)
        error = np.sqrt(np.where(variance > EQUALITY_TOLERANCE**2, variance, np.nan))
        p = np.where(np.abs(mean) <= EQUALITY_TOLERANCE, 1.0, 2 * stdtr(freedom, -np.abs(mean) / error))
    reach = stdtrit(freedom, 0.975) * error
    return mean, mean - reach, mean + reach, p, seeds


def _residual_variance(value: Float[np.ndarray, "*B S M"]) -> tuple[PerContest, PerContest]:
    """Return the mean square that seeds and methods leave over, on the seeds that all methods have, and its degrees of freedom.

    The methods share a variance in the mean square; with unequal ones it is less certain, and the degrees of freedom count the
    methods by their part of it: (sum_m q_m)^2 / sum_m q_m^2, q_m the sum of squares of a method. Both are 0 if there are no two
    such seeds.
    """
    methods = value.shape[-1]
    full = value[..., ~np.isnan(value.reshape(-1, *value.shape[-2:])).any((0, 2)), :]
    if full.shape[-2] < 2 or methods < 2:
        return np.zeros(value.shape[:-2]), np.zeros(value.shape[:-2])
    left = full - full.mean(-1, keepdims=True) - full.mean(-2, keepdims=True) + full.mean((-2, -1), keepdims=True)
    each = (left**2).sum(-2)
    every, seeds = each.sum(-1), full.shape[-2]
    with np.errstate(divide="ignore", invalid="ignore"):
        counted = np.nan_to_num(every**2 / (each**2).sum(-1), nan=1.0) * (methods - 1) / methods
    return every / ((seeds - 1) * (methods - 1)), (seeds - 1) * np.maximum(counted, 1)


def holm(p: Float[np.ndarray, "T"]) -> Float[np.ndarray, "T"]:
    """Return Holm's p-values in the given order: rejecting those below 0.05 makes any wrong rejection at most 5 % likely.

    Formula: of m sorted p, the k-th becomes max_{j <= k} min(1, (m - j + 1) p_j). NaN is no test, and stays.
    """
    found = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]  # NaN comes last
    found[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(order), 0, -1)))
    return found


def agreement(ours: Sequence[float], printed: Sequence[float]) -> Agreement:
    """Return whether two lists of values order the same methods in the same way. Methods with a NaN are left out."""
    both = np.array([ours, printed], np.float64)
    both = both[:, ~np.isnan(both).any(0)]
    n = both.shape[1]
    note = f"{n} methods are too few: their orders often agree by chance" if n < MIN_METHODS else ""
    if n < 2 or (np.ptp(both, axis=1) == 0).any():
        return Agreement(float("nan"), float("nan"), n, note or "all values of one side are the same")
    from scipy.stats import kendalltau  # slow to import

    found: Any = kendalltau(*both)
    return Agreement(float(found.statistic), float(found.pvalue), n, note)


MIN_POINTS = 4
"""Minimum number of points for an interval."""

PERFECT_TOLERANCE = 1e-12
"""Coefficients this near to 1 or -1 have no interval."""


class Coefficient(NamedTuple):
    """A correlation coefficient and its interval; NaN ends if there is none."""

    value: float
    low: float
    high: float


class Correlation(NamedTuple):
    """Pearson's coefficient (of the values) and Spearman's (of their ranks), and the number of points."""

    pearson: Coefficient
    spearman: Coefficient
    n: int


def correlate(x: Sequence[float], y: Sequence[float], level: float = 0.95) -> Correlation:
    """Return the correlation of two variables, with intervals from Fisher's transformation. Points with a NaN are left out.

    Formula: tanh( atanh(r) -+ q se ), q = the normal quantile of (1 + level) / 2; se^2 = 1 / (n - 3) for Pearson's r (Fisher
        1915), (1 + r^2 / 2) / (n - 3) for Spearman's (Bonett and Wright 2000)
    Differs: NaN if a variable is constant. No interval (NaN ends) for fewer than 4 points, and for a coefficient of 1 or -1,
        whose standard error would be 0.

    The interval is for other points like these, drawn independently.
    """
    from scipy.stats import rankdata  # slow to import

    both = np.array([x, y], np.float64).reshape(2, -1)
    both = both[:, ~np.isnan(both).any(0)]
    n = both.shape[1]
    if n < 2 or (np.ptp(both, axis=1) == 0).any():
        unknown = Coefficient(np.nan, np.nan, np.nan)
        return Correlation(unknown, unknown, n)
    quantile = float(ndtri((1 + level) / 2))
    values, ranks = (float(np.corrcoef(*pair)[0, 1]) for pair in (both, rankdata(both, axis=1)))
    return Correlation(
        _with_interval(values, n, quantile, 1.0), _with_interval(ranks, n, quantile, 1 + ranks**2 / 2), n
    )


def _with_interval(r: float, n: int, quantile: float, variance: float) -> Coefficient:
    """Return the coefficient with its interval; `variance`: that of atanh(r), times n - 3."""
    if n < MIN_POINTS or 1 - abs(r) < PERFECT_TOLERANCE:
        return Coefficient(r, np.nan, np.nan)
    reach = quantile * np.sqrt(variance / (n - 3))
    return Coefficient(r, float(np.tanh(np.arctanh(r) - reach)), float(np.tanh(np.arctanh(r) + reach)))
