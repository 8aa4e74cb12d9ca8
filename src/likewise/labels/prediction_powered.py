"""Prediction-powered inference: the mean of true values, of which some are known, from predictions for all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from likewise.core.errors import LikewiseError


class Powered(NamedTuple):
    """Estimated mean of the true values, its variance, and the weight of the predictions (0: they are not used)."""

    mean: float
    variance: float
    weight: float


def prediction_powered_mean(
    true: Float[np.ndarray, "n"],
    predicted: Float[np.ndarray, "n"],
    others: Float[np.ndarray, "m"],
    weight: float | None = None,
) -> Powered:
    """Return the mean of the true values of n + m given units, of which n were drawn at random and their true values are known.

    Formula: mean = mean(true - w predicted) + w mean(predicted of all n + m), w = cov(true, predicted) / var(predicted);
        variance = (1 - n / (n + m)) var(true - w predicted) / n
    Paper: Angelopoulos, Duchi, Zrnic, PPI++: Efficient Prediction-Powered Inference, 2023.
    Differs: the paper's units are a sample of a population, so its w is divided by 1 + n / m, and its variance is
        var(true - w predicted) / n + w^2 var(predicted) / m with the mean of the predictions of the m others. Here the n + m
        units are all there are.

    Args:
        true: true values of the drawn units.
        predicted: predictions for the drawn units.
        others: predictions for all other units.
        weight: of the predictions; None: the one with the smallest variance, in [0, 1].
    """
    n, count = len(true), len(true) + len(others)
    if n < 2 or predicted.shape != true.shape:
        raise LikewiseError(
            f"prediction_powered_mean: two true values or more must come with a prediction each, got {true.shape} and "
            f"{predicted.shape}"
        )
    if weight is None:
        table = np.cov(true, predicted)
        weight = float(np.clip(table[0, 1] / table[1, 1], 0, 1)) if table[1, 1] > 0 else 0.0
    rest = true - weight * predicted
    mean = rest.mean() + weight * np.concatenate([predicted, others]).mean()
    return Powered(float(mean), float((1 - n / count) * rest.var(ddof=1) / n), weight)
