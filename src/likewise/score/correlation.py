"""Correlation of two variables: Pearson's and Spearman's coefficients with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from likewise.core.errors import LikewiseError

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
    if len(x) != len(y):
        raise LikewiseError(f"correlate: x and y must have the same length, got {len(x)} and {len(y)}")
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
