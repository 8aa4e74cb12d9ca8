"""Intervals of a mean that hold as often as they say: over repetitions, over queries, or over whole classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from likewise.core.errors import LikewiseError

MIN_INTERVAL_UNITS = 10
"""Minimum number of queries or classes for an interval."""

MIN_FREEDOM = 5.0
"""Minimum degrees of freedom of an interval; below, Satterthwaite's approximation fails."""

MIN_EXTREME_UNITS = 1.0
"""Minimum number of whole units that the errors (or the hits) of a share amount to."""

MIN_CHANGED_UNITS = 5.0
"""Minimum number of units whose value is not zero, for the interval of a mean that is not a share."""

MIN_GALLERY_SHARE = 0.15
"""Minimum variance of a difference that the gallery adds, as a share of that of the classes: only the nearest rival is known."""

MIN_BLAMED_SHARE = 1 / 3
"""Minimum mean share from which wrong results are blamed in full; below, few queries would be right without them."""

ZERO_TOLERANCE = 1e-12
"""Sums of a unit up to this value are zero, and spreads up to this share of the values are rounding."""


class Interval(NamedTuple):
    """A mean and its interval; NaN ends if there is only one value."""

    mean: float
    low: float
    high: float
    n: int


class MeanInterval(NamedTuple):
    """A mean over queries with its interval, or the reason why there is none: then its ends and p are NaN.

    `p` is the two-sided p of "the mean is 0", from the same t as the interval: it is below 0.05 where the 95 % interval excludes
    0. It is NaN for shares.
    """

    mean: float
    low: float
    high: float
    p: float
    n: int  # units: queries or classes
    freedom: float
    reason: str


class RatioIntervals(NamedTuple):
    """Intervals of many means at once. `why`: 0 = there is an interval, else the number of the reason in `REASON_TEXTS`."""

    mean: Float[np.ndarray, "*S"]
    low: Float[np.ndarray, "*S"]
    high: Float[np.ndarray, "*S"]
    p: Float[np.ndarray, "*S"]
    freedom: Float[np.ndarray, "*S"]
    why: Int[np.ndarray, "*S"]


REASON_TEXTS = (
    "",
    "there are {n} {units}, and {least} are needed",
    "all {units} have the same mean",
    "a few large {units} decide: the {n} {units} are worth {worth:.1f} of equal size, and {freedom:.0f} are needed",
    "the {kind} are those of less than one of {n} {units}, so that another of them could change the mean a lot",
    "too few {units} changed ({changed} of {n})",
)
"""Reasons for no interval, as templates."""


def t_interval(values, level: float = 0.95) -> Interval:
    """Return the interval of a mean over independent repetitions, such as training seeds.

    Formula: mean +- t_{(1 + level) / 2, n - 1} s / sqrt(n), s with n - 1 in the denominator
    """
    from scipy.special import stdtrit  # slow to import

    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise LikewiseError(
            f"t_interval: values must be a vector of one finite number or more, got {values}; leave out failed repetitions"
        )
    mean, n = float(values.mean()), len(values)
    if n == 1:
        return Interval(mean, np.nan, np.nan, 1)
    reach = float(stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / np.sqrt(n))
    return Interval(mean, mean - reach, mean + reach, n)


def mean_interval(
    value: Float[np.ndarray, "Q"],
    unit: Int[np.ndarray, "Q"] | None = None,
    rival: Int[np.ndarray, "Q"] | None = None,
    *,
    share: bool | None = None,
    level: float = 0.95,
) -> MeanInterval:
    """Return the interval of the mean over queries, for other queries, or for other classes in queries and gallery.

    Queries of a class are similar, so an interval over queries holds only for other queries of the same classes, against the
    same gallery. An interval over classes (`unit`) holds for other classes, which is the claim of results on unseen classes.

    Args:
        value: one value per query; queries with NaN are left out.
        unit: the class of each query. None: each query is a unit.
        rival: the class of the nearest wrong result of each query, -1 if there is none. A class that is not drawn is missing from
            the gallery too; without `rival` the interval does not include this.
        share: the values lie between 0 and 1, and 1 is perfect: the interval is symmetric in log-odds. None: if all values do.
        level: how often the interval holds the mean of other units.
    """
    kept = ~np.isnan(value)
    if not kept.any() or np.isinf(value).any():
        raise LikewiseError(
            f"mean_interval: value must be finite for one query or more, got {kept.sum()} of {len(value)} without NaN and "
            f"{int(np.isinf(value).sum())} infinite; use queries with relevant gallery rows"
        )
    known = value[kept].astype(np.float64)
    if share is None:
        share = bool((known >= 0).all() and (known <= 1).all())
    if unit is None:
        total, count, gallery = known, np.ones(len(known)), None
    else:
        _, place, times = np.unique(unit[kept], return_inverse=True, return_counts=True)
        total, count = np.bincount(place, known), times.astype(np.float64)
        taken = blame(known, share)
        gallery = None if rival is None else np.array([gallery_variance(taken, unit[kept], rival[kept])])
    found = ratio_intervals(total[None], count[None], share=share, gallery=gallery, level=level)
    reason = _reason(found, total, "queries" if unit is None else "classes")
    mean, low, high, p, freedom = (float(part[0]) for part in found[:5])
    return MeanInterval(mean, low, high, p, len(count), freedom, reason)


def paired_interval(
    a: Float[np.ndarray, "Q"],
    b: Float[np.ndarray, "Q"],
    unit: Int[np.ndarray, "Q"] | None = None,
    rivals: tuple[Int[np.ndarray, "Q"], Int[np.ndarray, "Q"]] | None = None,
    *,
    level: float = 0.95,
) -> MeanInterval:
    """Return the `mean_interval` of b - a, query by query, so that the difficulty of a query cancels out.

    Args:
        rivals: the class of the nearest wrong result of each query in a and in b; a change is due to that of the worse side.
    """
    rival = None if rivals is None else np.where(b > a, rivals[0], rivals[1])
    return mean_interval(b - a, unit, rival, share=False, level=level)


def ratio_intervals(
    total: Float[np.ndarray, "*S C"],
    count: Float[np.ndarray, "*S C"],
    *,
    share: bool,
    gallery: Float[np.ndarray, "*S"] | None = None,
    level: float = 0.95,
) -> RatioIntervals:
    """Return intervals of sum(total) / sum(count) over units (classes) that vary, along the last axis.

    Paper: Bell and McCaffrey, Bias reduction in standard errors for linear regression with multi-stage samples, 2002 (CR2).
    Formula: w_c = n_c / N, r_c = T_c - m n_c; V_0 = sum_c r_c^2 / (1 - w_c) / N^2; V = V_0 + max(gallery, k V_0), with k = 0 for
        shares and MIN_GALLERY_SHARE for differences; m +- t_f sqrt(V), or for shares logit(m) +- t_f sqrt(V) / (m (1 - m));
        f = (sum_c a_c M_cc)^2 / sum_cd a_c a_d M_cd^2, with a_c = w_c^2 / (1 - w_c) and M_cd = [c = d] - w_c - w_d + sum w^2
    Differs: the degrees of freedom f are those of classes whose means vary equally whatever their size.

    Args:
        total: sum of the values of each unit.
        count: number of values of each unit.
        gallery: variance that the classes of the gallery add (`gallery_variance`); None: the gallery stays the same.
    """
    from scipy.special import expit, logit, stdtr, stdtrit  # slow to import

    units = total.shape[-1]
    size = count.sum(-1, keepdims=True)
    mean, weight = total.sum(-1, keepdims=True) / size, count / size
    left = np.maximum(1 - weight, np.finfo(np.float64).tiny)  # 0 for one unit only
    rest = np.where(np.abs(rest := total - mean * count) > ZERO_TOLERANCE * (count + np.abs(total)), rest, 0.0)
    own = (rest**2 / left).sum(-1) / size[..., 0] ** 2
    freedom = _freedom(weight, left) if units > 1 else np.zeros(own.shape)
    least = 0.0 if share else MIN_GALLERY_SHARE * own
    spread, mean = np.sqrt(own + (0.0 if gallery is None else np.maximum(gallery, least))), mean[..., 0]
    worth = freedom + 1
    extreme = worth * np.minimum(mean, 1 - mean)
    changed = worth * (weight * (np.abs(total) > ZERO_TOLERANCE)).sum(-1)
    thin = np.where(extreme < MIN_EXTREME_UNITS, 4, 0) if share else np.where(changed < MIN_CHANGED_UNITS, 5, 0)
    why = np.select([units < MIN_INTERVAL_UNITS, own == 0, freedom < MIN_FREEDOM], [1, 2, 3], thin)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = stdtrit(freedom, (1 + level) / 2) * spread
        if share:
            middle, reach = logit(mean), reach / (mean * (1 - mean))
            low, high, p = expit(middle - reach), expit(middle + reach), np.full(mean.shape, np.nan)
        else:
            low, high, p = mean - reach, mean + reach, 2 * stdtr(freedom, -np.abs(mean) / spread)
    low, high, p = (np.where(why == 0, end, np.nan) for end in (low, high, p))
    return RatioIntervals(mean, low, high, p, freedom, why)


def blame(value: Float[np.ndarray, "Q"], share: bool) -> Float[np.ndarray, "Q"]:
    """Return what the nearest wrong result takes from the value of each query.

    Formula: shares: (value - 1) min(1, mean / MIN_BLAMED_SHARE)^2; differences: the value. The square is empirical.
    """
    return (value - 1) * min(1.0, float(value.mean()) / MIN_BLAMED_SHARE) ** 2 if share else value


def gallery_variance(taken: Float[np.ndarray, "Q"], unit: Int[np.ndarray, "Q"], rival: Int[np.ndarray, "Q"]) -> float:
    """Return the variance of a mean due to the classes as wrong results: those that are drawn are in the gallery as well.

    Two classes that confuse each other lose or gain together, so their queries are not independent. It may be negative.

    Paper: Fafchamps and Gubert, The formation of risk sharing networks, 2007 (pairs that share a member).
    Formula: e_cd = E_cd - x n_c / (K - 1), E_cd the blame of the queries of class c with rival d, x the mean blame, K classes;
        o_c = own blame - x n_c, b_d = sum_c e_cd; V = (sum_c (2 o_c b_c + b_c^2) - sum_{c < d} (e_cd + e_dc)^2) / N^2
    """
    size, there = len(taken), rival >= 0
    names = np.unique(np.concatenate([unit, rival[there]]))
    classes = len(names)
    if classes < 2:
        return 0.0
    own, other = np.searchsorted(names, unit), np.searchsorted(names, rival[there])
    count, given, x = np.bincount(own, minlength=classes), taken[there], taken[there].sum() / size
    o = np.bincount(own, taken, classes) - taken.mean() * count
    b = np.bincount(other, given, classes) - x * (size - count) / (classes - 1)
    low, high = np.minimum(own[there], other), np.maximum(own[there], other)
    pair, at = np.unique(low * classes + high, return_inverse=True)
    s, expected = (
        np.bincount(at, given, len(pair)),
        x * (count[pair // classes] + count[pair % classes]) / (classes - 1),
    )
    # sum of expected^2 over all pairs
    no_pair = (x / (classes - 1)) ** 2 * ((classes - 2) * (count**2.0).sum() + size**2)
    doubled = (s * s - 2 * s * expected).sum() + no_pair
    return float(((2 * o * b + b * b).sum() - doubled) / size**2)


def _freedom(weight: Float[np.ndarray, "*S C"], left: Float[np.ndarray, "*S C"]) -> Float[np.ndarray, "*S"]:
    """Return Satterthwaite's degrees of freedom of the variance, without the C x C matrix M."""
    a, square = weight**2 / left, (weight**2).sum(-1, keepdims=True)
    diagonal = 1 - 2 * weight + square
    zeroth, first, second, s = a.sum(-1), (a * weight).sum(-1), (a * weight**2).sum(-1), square[..., 0]
    # sum_cd a_c a_d (s - w_c - w_d)^2
    every = s**2 * zeroth**2 + 2 * second * zeroth + 2 * first**2 - 4 * s * first * zeroth
    every += (a**2 * (diagonal**2 - (diagonal - 1) ** 2)).sum(-1)
    return (a * diagonal).sum(-1) ** 2 / every


def _reason(found: RatioIntervals, total: Float[np.ndarray, "C"], units: str) -> str:
    """Return the reason for no interval of the first mean as text; "" if there is one."""
    facts = {
        "n": len(total), "units": units, "least": MIN_INTERVAL_UNITS, "worth": float(found.freedom[0]) + 1,
        "freedom": MIN_FREEDOM + 1, "kind": "errors" if found.mean[0] > 0.5 else "hits",
        "changed": int((np.abs(total) > ZERO_TOLERANCE).sum()),
    }  # fmt: skip
    return REASON_TEXTS[int(found.why[0])].format(**facts)
