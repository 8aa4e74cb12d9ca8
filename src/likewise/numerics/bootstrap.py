"""How sure a mean is: t intervals over repetitions, bootstrap intervals over queries or whole classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from likewise.errors import LikewiseError

FEW = 10
"""With fewer units than this, a bootstrap interval is too narrow to be believed: what was not seen cannot be drawn."""

BLOCK = 1 << 17
"""Numbers drawn at a time: few enough to stay in the cache."""


class Interval(NamedTuple):
    """A mean and the interval around it; NaN where one value cannot tell."""

    mean: float
    low: float
    high: float
    n: int


class Redrawn(NamedTuple):
    """What redrawing says of a mean: a number for a vector, one a column for a matrix.

    `crossing` is 2 (1 + k) / (1 + draws), at most 1, with k the draws whose mean is zero or on the other side of it than most
    are. It reads like a two-sided p-value for "the mean is zero", but it comes from the draws around the mean that was
    seen, not from a null hypothesis. It is never 0.
    """

    mean: float | Float[np.ndarray, "M"]
    low: float | Float[np.ndarray, "M"]
    high: float | Float[np.ndarray, "M"]
    crossing: float | Float[np.ndarray, "M"]
    n: int  # units that were redrawn
    dropped: int  # rows with NaN, left out

    @property
    def few(self) -> bool:
        """Whether the units are too few for the interval to be believed."""
        return self.n < FEW


def t_interval(values, level: float = 0.95) -> Interval:
    """Interval of a mean over independent repetitions, such as training seeds.

    Formula: mean +- t_{(1 + level) / 2, n - 1} s / sqrt(n), s with n - 1 below
    """
    values, level = np.asarray(values, np.float64), _share(level)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise LikewiseError(
            f"t_interval: values must be a line of one finite number or more, got {values}; leave out what failed"
        )
    mean, n = float(values.mean()), len(values)
    if n == 1:
        return Interval(mean, np.nan, np.nan, 1)
    reach = float(stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / np.sqrt(n))
    return Interval(mean, mean - reach, mean + reach, n)


def bootstrap(
    value: Float[np.ndarray, "Q *M"],
    unit: Int[np.ndarray, "Q"] | None = None,
    *,
    balanced: bool = False,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Redrawn:
    """Percentile interval of the mean over rows, redrawing rows, or all rows of a unit (a class) together.

    Rows of a class are alike, so redrawing single rows speaks only of other pictures of these very classes; redrawing
    classes speaks of other classes, and is what results on unseen classes claim.

    Args:
        value: one number a row, or several; a row with NaN in any is left out and counted.
        unit: the class of each row. None: each row is a unit.
        balanced: the mean of the units' means, so that a class counts the same whatever its size.
        level: share of the draws inside the interval.
        resamples: how many times all units are redrawn.
        seed: of the draws. Same seed and units, same draws.
    """
    level = _share(level)
    if resamples < 100:
        raise LikewiseError(f"bootstrap: resamples must be 100 or more for an interval's ends, got {resamples}")
    if value.ndim not in (1, 2) or (unit is not None and unit.shape != value.shape[:1]):
        shapes = f"{value.shape} and {None if unit is None else unit.shape}"
        raise LikewiseError(f"bootstrap: value must be (rows,) or (rows, columns) and unit (rows,), got {shapes}")
    table = (value[:, None] if value.ndim == 1 else value).astype(np.float64)
    kept = ~np.isnan(table).any(1)
    if not kept.any() or np.isinf(table).any():
        raise LikewiseError(
            f"bootstrap: value must be finite in one row or more, got {kept.sum()} rows of {len(table)} without NaN and "
            f"{int(np.isinf(table).sum())} infinite numbers; bring queries that have something to find"
        )
    total, count = _sums(table[kept], None if unit is None else unit[kept])
    if balanced:
        total, count = total / count[:, None], np.ones(len(count))
    mean = total.sum(0) / count.sum()
    if len(count) == 1:  # one unit redrawn is always itself, which is no certainty
        low = high = crossing = np.full_like(mean, np.nan)
    else:
        drawn = _redraw(total, count, resamples, seed)
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        other = np.minimum((drawn <= 0).sum(0), (drawn >= 0).sum(0))
        crossing = np.minimum(1.0, 2 * (1 + other) / (1 + resamples))
    columns = (mean, low, high, crossing)
    if value.ndim == 1:
        columns = tuple(float(column[0]) for column in columns)
    return Redrawn(*columns, len(count), int((~kept).sum()))  # pyright: ignore[reportCallIssue]


def paired(
    a: Float[np.ndarray, "Q *M"], b: Float[np.ndarray, "Q *M"], unit: Int[np.ndarray, "Q"] | None = None, **how
) -> Redrawn:
    """`bootstrap` of b - a, row by row: both sides see the same draws, so what makes a query hard for both cancels out."""
    if a.shape != b.shape:
        raise LikewiseError(f"paired: a and b must have one shape, got {a.shape} and {b.shape}; join them by row first")
    return bootstrap(b - a, unit, **how)


def _share(level: float) -> float:
    if not 0 < level < 1:
        raise LikewiseError(f"intervals: level must lie between 0 and 1, got {level}; 0.95 is usual")
    return level


def _sums(
    value: Float[np.ndarray, "Q M"], unit: Int[np.ndarray, "Q"] | None
) -> tuple[Float[np.ndarray, "C M"], Float[np.ndarray, "C"]]:
    """A mean over rows is a ratio of two sums over units: all that redrawing needs to know of a unit."""
    if unit is None:
        return value, np.ones(len(value))
    _, place, count = np.unique(unit, return_inverse=True, return_counts=True)
    return np.stack([np.bincount(place, column) for column in value.T], 1), count.astype(np.float64)


def _redraw(
    total: Float[np.ndarray, "C M"], count: Float[np.ndarray, "C"], resamples: int, seed: int
) -> Float[np.ndarray, "draws M"]:
    """The mean of every draw: how often each unit was drawn, times what it brings. Blocks of draws bound the memory."""
    rng, units, brings = np.random.default_rng(seed), len(count), np.column_stack([total, count])
    many, means = max(1, BLOCK // units), []
    for first in range(0, resamples, many):
        here = min(many, resamples - first)
        drawn = rng.integers(units, size=(here, units)) + units * np.arange(here)[:, None]
        times = np.bincount(drawn.ravel(), minlength=here * units).reshape(here, units)
        sums = times @ brings
        means.append(sums[:, :-1] / sums[:, -1:])
    return np.concatenate(means)
