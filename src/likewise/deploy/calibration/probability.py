"""The probability that the nearest neighbour has the class of the query: logistic in the similarity, and its reliability."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

CURVE_KNOT_COUNT = 33
"""Knots of the stored curve; linear between them, it differs from the logistic curve by less than 0.005."""

RELIABILITY_BINS = 10
"""Bins of equal numbers of queries in the reliability figure."""

CLASS_FOLD_COUNT = 5
"""Folds of classes of the reliability: the curve of a class is fitted without it."""

INVERSE_PENALTY_WEIGHT = 1e3
"""Inverse weight of the squared slope, which keeps it finite if no similarity is on the wrong side."""


def fit_probability(
    sim: Float[np.ndarray, "N"], right: Bool[np.ndarray, "N"], weight: Float[np.ndarray, "N"]
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return the knots of the curve: similarities that ascend, and probabilities.

    Formula: P(right) = 1 / (1 + exp(-(a + b s))), b >= 0, of largest weighted likelihood; no value nearer to 0 or 1 than
        1 / (N + 2), which N queries cannot distinguish from 0 or 1
    """
    from sklearn.linear_model import LogisticRegression  # takes a second, and a search without a calibration needs none

    sim = sim.astype(np.float64)
    mean, spread = sim.mean(), max(float(sim.std()), 1e-9)
    scaled = (sim - mean) / spread
    knots = np.unique(np.linspace(sim.min(), sim.max(), CURVE_KNOT_COUNT))
    level = np.full(len(knots), np.average(right, weights=weight))
    if right.any() and not right.all():
        model = LogisticRegression(C=INVERSE_PENALTY_WEIGHT, max_iter=1000)
        model.fit(scaled[:, None], right, sample_weight=weight * (len(sim) / weight.sum()))
        slope, at_mean = float(np.ravel(model.coef_)[0]), float(np.ravel(model.intercept_)[0])
        if slope > 0:
            level = expit(at_mean + slope * (knots - mean) / spread)
    end = 1 / (len(sim) + 2)
    return knots, np.clip(level, end, 1 - end)


def reliability(
    sim: Float[np.ndarray, "N"], right: Bool[np.ndarray, "N"], weight: Float[np.ndarray, "N"], y: Int[np.ndarray, "N"]
) -> dict[str, list[float]]:
    """Return predicted and observed shares of right neighbours in bins, cross-fitted by class, and the error between them.

    The expected calibration error is the mean over queries of |predicted - observed| of their bins, every class with the same
    weight.
    """
    predicted = np.zeros(len(sim))
    fold = np.random.default_rng(0).permutation(int(y.max()) + 1)[y] % CLASS_FOLD_COUNT
    for part in range(CLASS_FOLD_COUNT):
        here = fold == part
        if here.any() and not here.all():
            predicted[here] = np.interp(sim[here], *fit_probability(sim[~here], right[~here], weight[~here]))
    order = np.argsort(predicted, kind="stable")
    bins = [part for part in np.array_split(order, RELIABILITY_BINS) if len(part)]
    mass = np.array([weight[part].sum() for part in bins])
    said = np.array([np.average(predicted[part], weights=weight[part]) for part in bins])
    seen = np.array([np.average(right[part], weights=weight[part]) for part in bins])
    error = float((mass * np.abs(said - seen)).sum() / mass.sum())
    return {
        "reliability_predicted": said.round(6).tolist(),
        "reliability_observed": seen.round(6).tolist(),
        "reliability_share": (mass / mass.sum()).round(6).tolist(),
        "calibration_error": [round(error, 6)],
    }
