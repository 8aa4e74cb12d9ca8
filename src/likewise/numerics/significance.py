"""Significance tests for many methods: paired tests, Holm's correction, mean ranks and critical differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc, stdtr

from likewise.errors import LikewiseError

SIGN_BLOCK_SIZE = 1 << 20
"""Maximum number of signs drawn at a time, to bound the memory."""

EQUALITY_TOLERANCE = 1e-12
"""Differences up to this share of the compared values are rounding."""

MIN_METHODS = 4
"""Minimum number of methods for a meaningful comparison of two orders."""


class Ranks(NamedTuple):
    """Mean rank of every method over units (1: the best); units with NaN were left out."""

    mean: Float[np.ndarray, "M"]
    units: int
    dropped: int


class Agreement(NamedTuple):
    """How far two orders of the same methods agree: Kendall's tau-b (1: the same order, -1: reversed)."""

    tau: float
    p: float
    n: int
    note: str


@dataclass(frozen=True)
class PairTest:
    """Two methods in one column of a table: b - a, its 95 % interval over classes, and p over classes and over seeds.

    All values use the `seeds` seeds that both methods have. Both p are corrected by Holm for all pairs of the column.
    """

    column: str
    a: str
    b: str
    difference: float
    low: float
    high: float
    p_classes: float
    p_seeds: float
    seeds: int
    outcome: str

    @property
    def is_significant(self) -> bool:
        """Whether one method is significantly better."""
        return self.outcome in ("better", "worse")


@dataclass(frozen=True)
class MethodComparison:
    """Several methods on the same queries: tests of all pairs, and ranks of all methods over test classes.

    `rank` has the methods that all columns have, the best first. `friedman`: p of "no method is better than another".
    """

    metric: str
    queries: int
    unscored: int
    classes: int
    pairs: tuple[PairTest, ...]
    rank: dict[str, float]
    friedman: float
    critical: float

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Return the largest groups of methods whose ranks do not differ significantly."""
        names, ranks = list(self.rank), np.array(list(self.rank.values()), np.float64)
        return [tuple(names[place] for place in group) for group in cliques(ranks, self.critical)]


def blocked_t(values: Float[np.ndarray, "S M"]) -> Float[np.ndarray, "M M"]:
    """Return the two-sided p of "these two methods are equally good" for all pairs: t-tests with seeds as blocks.

    All methods are assumed to have the same variance over seeds, after the effect of a seed on all methods is removed, so
    all methods
    contribute to its estimate: with three seeds, one pair alone gives a poor estimate. For two methods it is Student's
    paired t-test.

    Formula: t = mean_s(b_s - a_s) sqrt(n / (2 v)), over the n seeds that both have; v = residual sum of squares of the fit
        value_sm = method_m + seed_s, divided by its degrees of freedom, which are t's

    Args:
        values: one value per seed and method; NaN: no training. The result is NaN for fewer than two common seeds, and
        where the
            residual is 0 although the two differ: with few queries this happens by chance, and p would be 0.
    """
    if values.ndim != 2 or np.isinf(values).any():
        raise LikewiseError(
            f"blocked_t: values must be seeds by methods, finite or NaN, got {values}; leave out failed trainings"
        )
    there = ~np.isnan(values)
    seed, method = np.nonzero(there)
    design = np.concatenate([np.eye(len(values))[seed], np.eye(values.shape[1])[method]], 1)
    known = values[there].astype(np.float64)
    fitted, _, rank, _ = np.linalg.lstsq(design, known, rcond=None)
    left, freedom = ((known - design @ fitted) ** 2).sum(), len(known) - int(rank)
    gain = values.T[None, :, :] - values.T[:, None, :]
    n = (~np.isnan(gain)).sum(2)
    p = np.full(n.shape, np.nan)
    mean = np.nansum(gain, 2) / np.maximum(n, 1)
    both = n > 1
    p[both & (np.abs(mean) <= EQUALITY_TOLERANCE)] = 1.0
    if freedom > 0 and left > (EQUALITY_TOLERANCE * np.abs(known).max()) ** 2 * len(known):
        some = both & (np.abs(mean) > EQUALITY_TOLERANCE)
        t = np.abs(mean) * np.sqrt(n / (2 * left / freedom))
        p[some] = 2 * stdtr(freedom, -t[some])
    return p


def sign_flip(
    difference: Float[np.ndarray, "U *M"], resamples: int = 10_000, seed: int = 0
) -> float | Float[np.ndarray, "M"]:
    """Return the two-sided p of "each unit's difference could have the other sign", by the absolute value of their sum.

    All 2^U choices of signs are used if they are at most `resamples`; otherwise `resamples` random choices, and p is
    (1 + k) / (1 + resamples), with k the choices whose sum is as far from zero. It is never 0. For a matrix, the result has
    one p per
    column, all with the same signs.
    """
    if difference.ndim not in (1, 2) or not len(difference) or not np.isfinite(difference).all() or resamples < 1:
        raise LikewiseError(
            f"sign_flip: difference must be finite, one unit or more along its first axis, and resamples 1 or more, got "
            f"{difference.shape} with {int((~np.isfinite(difference)).sum())} values not finite and {resamples} resamples; "
            "leave out units without a value"
        )
    table = (difference[:, None] if difference.ndim == 1 else difference).astype(np.float64)
    units = len(table)
    seen = np.abs(table.sum(0)) - EQUALITY_TOLERANCE * np.abs(table).sum(0)
    exact, rng, step = 2**units <= resamples, np.random.default_rng(seed), max(1, SIGN_BLOCK_SIZE // units)
    total, count = 2**units if exact else resamples, np.zeros(table.shape[1])
    for first in range(0, total, step):
        here = min(step, total - first)
        if exact:
            bits = np.arange(first, first + here)[:, None] >> np.arange(units) & 1
        else:
            bits = rng.integers(2, size=(here, units), dtype=np.int8)
        count += (np.abs((1.0 - 2.0 * bits) @ table) >= seen).sum(0)
    p = count / total if exact else (1 + count) / (1 + total)
    return float(p[0]) if difference.ndim == 1 else p


def holm(p: Float[np.ndarray, "T"]) -> Float[np.ndarray, "T"]:
    """Return Holm's p-values in the given order: rejecting those below 0.05 makes any wrong rejection at most 5 % likely.

    Formula: of m sorted p, the k-th becomes max_{j <= k} min(1, (m - j + 1) p_j). NaN is no test, and stays.
    """
    found = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]  # NaN comes last
    found[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(order), 0, -1)))
    return found


def mean_ranks(values: Float[np.ndarray, "U M"]) -> Ranks:
    """Return the mean over units of the methods' ranks: the highest value has rank 1, ties share their ranks."""
    kept = _complete_units(values, "mean_ranks")
    return Ranks(_ranked(kept).mean(0), len(kept), len(values) - len(kept))


def friedman(values: Float[np.ndarray, "U M"]) -> float:
    """Return p of Friedman's test of "all methods are equally good", by ranks within units, corrected for ties.

    Formula: Q = 12 n / (k (k + 1)) sum_j (R_j - (k + 1) / 2)^2 / (1 - sum(t^3 - t) / (n k (k^2 - 1))), chi-square with k - 1
    """
    ranks = _ranked(_complete_units(values, "friedman"))
    n, k = ranks.shape
    tied = sum(int((many**3 - many).sum()) for many in (np.unique(row, return_counts=True)[1] for row in ranks))
    untied = 1 - tied / (n * k * (k * k - 1)) if k > 1 else 0.0
    if untied <= EQUALITY_TOLERANCE:  # all methods are tied in all units
        return 1.0
    return float(chdtrc(k - 1, 12 * n / (k * (k + 1)) * ((ranks.mean(0) - (k + 1) / 2) ** 2).sum() / untied))


def critical_difference(methods: int, units: int, level: float = 0.95) -> float:
    """Return the difference of two mean ranks that is significant when all pairs are compared (Nemenyi).

    Paper: Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 2006.
    Formula: q sqrt(k (k + 1) / (6 n)), q the studentized range's quantile for k means, over sqrt 2
    """
    if methods < 2 or units < 1 or not 0 < level < 1:
        raise LikewiseError(
            f"critical_difference: methods must be 2 or more, units 1 or more, and level between 0 and 1, got {methods}, "
            f"{units} and {level}"
        )
    from scipy.stats import studentized_range  # slow to import

    q = studentized_range.ppf(level, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * units)))


def cliques(ranks: Float[np.ndarray, "M"], critical: float) -> list[tuple[int, ...]]:
    """Return the largest groups of two or more methods within the critical difference, the best first."""
    order, found, end = np.argsort(ranks, kind="stable"), [], 0
    for first in range(len(order)):
        last = first
        while last + 1 < len(order) and ranks[order[last + 1]] - ranks[order[first]] < critical:
            last += 1
        if last > first and last + 1 > end:
            found.append(tuple(order[first : last + 1].tolist()))
            end = last + 1
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


def _complete_units(values: Float[np.ndarray, "U M"], owner: str) -> Float[np.ndarray, "u M"]:
    """Return the units without NaN; raise if there are none."""
    kept = values[~np.isnan(values).any(1)]
    if not kept.size:
        raise LikewiseError(
            f"{owner}: values must be units by methods with one unit or more without NaN, got {values.shape} with "
            f"{len(kept)} such units; use units for which all methods have a value"
        )
    return kept


def _ranked(values: Float[np.ndarray, "U M"]) -> Float[np.ndarray, "U M"]:
    from scipy.stats import rankdata  # slow to import

    return rankdata(-values, axis=1)
