"""Intervals of a mean: t intervals over repetitions, bootstrap intervals over queries or whole classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from likewise.errors import LikewiseError

MIN_INTERVAL_UNITS = 10
"""Minimum number of units for a bootstrap interval; with fewer, the interval is too narrow."""

RESAMPLE_BLOCK_SIZE = 1 << 17
"""Maximum number of random numbers drawn at a time: few enough to stay in the cache."""


class Interval(NamedTuple):
    """A mean and its interval; NaN ends if there is only one value."""

    mean: float
    low: float
    high: float
    n: int


class BootstrapResult(NamedTuple):
    """Result of a bootstrap: one value for a vector, one per column for a matrix.

    `crossing` is 2 (1 + k) / (1 + resamples), at most 1, with k the resamples whose mean is zero or has the other sign than
    most. It is
    used like a two-sided p-value for "the mean is zero", but it comes from resamples around the observed mean, not from a null
    hypothesis. It is never 0.
    """

    mean: float | Float[np.ndarray, "M"]
    low: float | Float[np.ndarray, "M"]
    high: float | Float[np.ndarray, "M"]
    crossing: float | Float[np.ndarray, "M"]
    n: int  # units that were resampled
    dropped: int  # rows with NaN, left out

    @property
    def few(self) -> bool:
        """Whether there are too few units for a reliable interval."""
        return self.n < MIN_INTERVAL_UNITS


def t_interval(values, level: float = 0.95) -> Interval:
    """Return the interval of a mean over independent repetitions, such as training seeds.

    Formula: mean +- t_{(1 + level) / 2, n - 1} s / sqrt(n), s with n - 1 in the denominator
    """
    values, level = np.asarray(values, np.float64), _checked_level(level)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise LikewiseError(
            f"t_interval: values must be a vector of one finite number or more, got {values}; leave out failed repetitions"
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
) -> BootstrapResult:
    """Return the percentile interval of the mean over rows, resampling rows, or all rows of a unit (a class) together.

    Rows of a class are similar, so an interval over rows holds only for other images of the same classes; an interval over
    classes
    holds for other classes, which is the claim of results on unseen classes.

    Args:
        value: one value per row, or several; a row with NaN in any column is left out and counted.
        unit: the class of each row. None: each row is a unit.
        balanced: use the mean of the units' means, so that all classes count the same whatever their size.
        level: share of the resamples inside the interval.
        resamples: number of resamples.
        seed: seed of the resamples. The same seed and units give the same resamples.
    """
    level = _checked_level(level)
    if resamples < 100:
        raise LikewiseError(f"bootstrap: resamples must be 100 or more, got {resamples}; raise it")
    if value.ndim not in (1, 2) or (unit is not None and unit.shape != value.shape[:1]):
        shapes = f"{value.shape} and {None if unit is None else unit.shape}"
        raise LikewiseError(f"bootstrap: value must be (rows,) or (rows, columns) and unit (rows,), got {shapes}")
    table = (value[:, None] if value.ndim == 1 else value).astype(np.float64)
    kept = ~np.isnan(table).any(1)
    if not kept.any() or np.isinf(table).any():
        raise LikewiseError(
            f"bootstrap: value must be finite in one row or more, got {kept.sum()} rows of {len(table)} without NaN and "
            f"{int(np.isinf(table).sum())} infinite values; use queries with relevant gallery rows"
        )
    total, count = _sums(table[kept], None if unit is None else unit[kept])
    if balanced:
        total, count = total / count[:, None], np.ones(len(count))
    mean = total.sum(0) / count.sum()
    if len(count) == 1:  # all resamples of one unit are equal, so there is no interval
        low = high = crossing = np.full_like(mean, np.nan)
    else:
        drawn = _redraw(total, count, resamples, seed)
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        other = np.minimum((drawn <= 0).sum(0), (drawn >= 0).sum(0))
        crossing = np.minimum(1.0, 2 * (1 + other) / (1 + resamples))
    columns = (mean, low, high, crossing)
    if value.ndim == 1:
        columns = tuple(float(column[0]) for column in columns)
    return BootstrapResult(*columns, len(count), int((~kept).sum()))  # pyright: ignore[reportCallIssue]


def paired(
    a: Float[np.ndarray, "Q *M"], b: Float[np.ndarray, "Q *M"], unit: Int[np.ndarray, "Q"] | None = None, **how
) -> BootstrapResult:
    """Return the `bootstrap` of b - a, row by row: both use the same resamples, so the difficulty of a query cancels out."""
    if a.shape != b.shape:
        raise LikewiseError(
            f"paired: a and b must have the same shape, got {a.shape} and {b.shape}; align them by row first"
        )
    return bootstrap(b - a, unit, **how)


def metrics_by_rows(each: Mapping[str, Float[np.ndarray, "Q"]]) -> list[list[str]]:
    """Return the names of values per query in lists that have NaN in the same rows, so that one `bootstrap` serves a list."""
    same: dict[bytes, list[str]] = {}
    for name, value in each.items():
        same.setdefault(np.isnan(value).tobytes(), []).append(name)
    return list(same.values())


def _checked_level(level: float) -> float:
    if not 0 < level < 1:
        raise LikewiseError(f"intervals: level must lie between 0 and 1, got {level}; use 0.95")
    return level


def _sums(
    value: Float[np.ndarray, "Q M"], unit: Int[np.ndarray, "Q"] | None
) -> tuple[Float[np.ndarray, "C M"], Float[np.ndarray, "C"]]:
    """Return the sum of values and the number of rows of every unit: a mean over rows is the ratio of their sums."""
    if unit is None:
        return value, np.ones(len(value))
    _, place, count = np.unique(unit, return_inverse=True, return_counts=True)
    return np.stack([np.bincount(place, column) for column in value.T], 1), count.astype(np.float64)


def _redraw(
    total: Float[np.ndarray, "C M"], count: Float[np.ndarray, "C"], resamples: int, seed: int
) -> Float[np.ndarray, "draws M"]:
    """Return the mean of every resample, from how often each unit was drawn. Blocks of resamples bound the memory."""
    rng, units, columns = np.random.default_rng(seed), len(count), np.column_stack([total, count])
    step, means = max(1, RESAMPLE_BLOCK_SIZE // units), []
    for first in range(0, resamples, step):
        here = min(step, resamples - first)
        drawn = rng.integers(units, size=(here, units)) + units * np.arange(here)[:, None]
        times = np.bincount(drawn.ravel(), minlength=here * units).reshape(here, units)
        sums = times @ columns
        means.append(sums[:, :-1] / sums[:, -1:])
    return np.concatenate(means)
