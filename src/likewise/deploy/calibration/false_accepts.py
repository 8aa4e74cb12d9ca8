"""Upper bounds of error rates on new classes, from the rates of validation classes: classes are the units, not images."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

PROMISE_LEVEL = 0.95
"""Share of choices of classes in which a bound must hold."""

MAX_EXPONENT = 50.0
"""Bound of the exponent of a bound, which is far above 1 there in any case."""


def smallest_rate(units: int, level: float = PROMISE_LEVEL) -> float:
    """Return the smallest rate that units (classes, or pairs of classes) without any error can promise for as many new units.

    If u of 2 U units are errors throughout, and U of the 2 U are drawn for validation, all u are among the other half with the
    chance prod_{i < u} (U - i) / (2 U - i), whatever the data. As long as this exceeds 1 - level, u errors remain possible.

    Formula: u / U, for the largest such u: 4 / U at level 0.95 from 16 units on
    """
    chance, errors = 1.0, 0
    while errors < units:
        chance *= (units - errors) / (2 * units - errors)
        if chance <= 1 - level:
            break
        errors += 1
    return errors / units if units else 1.0


def upper_rates(
    rate: Float[np.ndarray, "K"],
    left_out: Float[np.ndarray, "C K"],
    least: float | Float[np.ndarray, "K"],
    *,
    shared: Float[np.ndarray, "K"] | None = None,
    level: float = PROMISE_LEVEL,
) -> Float[np.ndarray, "K"]:
    """Return an upper bound of the rate that as many new classes will show, at every threshold.

    The bound is one-sided, of Student's t on the logarithm of the rate, with the jackknife variance over classes. The factor 2
    is there because the rate of the new classes varies as much as that of the validation classes.

    Formula: r exp( t_{level, C - 1} sqrt(2 v) / r ), v = (C - 1) / C sum_c (r_c - mean r_c)^2, r_c the rate without class c

    Args:
        rate: the rate of the validation classes at every threshold.
        left_out: the same without one class.
        least: the bound is nowhere lower; see `smallest_rate`.
        shared: part of v that the jackknife counts twice, since it belongs to two classes; at most half of v is taken off.
    """
    classes = len(left_out)
    spread = (classes - 1) / classes * ((left_out - left_out.mean(0)) ** 2).sum(0)
    if shared is not None:
        spread = np.maximum(spread - shared, spread / 2)
    some = rate > 0
    relative = np.sqrt(2 * spread) / np.where(some, rate, 1.0)
    grown = rate * np.exp(np.minimum(stdtrit(classes - 1, level) * relative, MAX_EXPONENT))
    return np.minimum(np.maximum(grown, least), 1.0)


def first_within(upper: Float[np.ndarray, "K"], requested: float) -> int | None:
    """Return the first threshold (they ascend) at which the bound is at most the requested rate; None if there is none."""
    within = np.flatnonzero(upper <= requested)
    return int(within[0]) if len(within) else None
