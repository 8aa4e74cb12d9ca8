"""A calibration from embeddings of validation classes: both thresholds, the curve of probabilities, and what the figures draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from scipy.special import expit, logit

from likewise.core.types import LikewiseError
from likewise.deploy.calibration.threshold_promises import (
    Nearest,
    Promise,
    choose,
    nearest_among,
    nearest_in,
    pair_rates,
    prepare,
    promise_of_neighbours,
    promise_of_pairs,
    weights,
)
from likewise.runs.calibration import Calibration, Threshold, Validation, read_calibration, read_validation

MIN_CALIBRATION_CLASSES = 3
"""Fewest classes with which leaving one out leaves a pair of classes."""

DEFAULT_FALSE_ACCEPT_RATE = 0.01
"""False-accept rate without a setting, or the smallest rate that can be promised if that is larger."""

MAX_CURVE_POINTS = 200
"""Most points of a stored curve."""


class Target(NamedTuple):
    """What a calibration must keep: the kind of errors, and the largest share of errors; None: the default."""

    aim: Literal["false accepts", "precision"] = "false accepts"
    rate: float | None = None


def build_calibration(held: Validation, target: Target, step: Callable[[], None] = lambda: None) -> Calibration:
    """Return the calibration of a network whose gallery is like its validation classes.

    Args:
        step: called after each of three steps.
    """
    if len(held.class_name) < MIN_CALIBRATION_CLASSES:
        raise LikewiseError(
            f"calibrate: there must be {MIN_CALIBRATION_CLASSES} validation classes or more, got {len(held.class_name)}; train "
            'with more: --protocol "UnseenClasses(val=0.2)"'
        )
    z = prepare(held.z, held.similarity)
    rates = pair_rates(z, held.y, held.group, held.similarity)
    promise = promise_of_pairs(rates, target.aim)
    pair = choose(promise, target.rate, DEFAULT_FALSE_ACCEPT_RATE, target.aim)
    step()
    found = nearest_among(z, held.y, held.group, held.similarity)
    step()
    made = for_neighbours(found, held.similarity, target, pair, len(held.y), len(held.class_name))
    step()
    curves = curves_of("pair", promise) | {"pair_prevalence": [rates.prevalence]} | made["curves"]
    return Calibration(**made | {"curves": curves, "same_pairs": rates.prevalence})


def build_for_gallery(
    held: Validation,
    known: Calibration,
    target: Target,
    gallery: Float[np.ndarray, "G D"],
    gallery_y: Int[np.ndarray, "G"],
) -> Calibration:
    """Return the calibration for another gallery, with the pair threshold of the run. `gallery_y` as in `nearest_in`."""
    z, other = prepare(held.z, held.similarity), prepare(gallery, held.similarity)
    found = nearest_in(z, held.y, held.group, held.similarity, other, gallery_y)
    made = for_neighbours(found, held.similarity, target, known.pair, len(gallery_y), len(np.unique(gallery_y)))
    pairs = {name: values for name, values in known.curves.items() if name.startswith("pair_")}
    return Calibration(
        **made | {"curves": pairs | made["curves"], "same_pairs": known.same_pairs, "about": known.about}
    )


def for_neighbours(found: Nearest, similarity: str, target: Target, pair: Threshold, rows: int, classes: int) -> dict:
    """Return the fields of a calibration that depend on the gallery, beside the pair threshold."""
    promise = promise_of_neighbours(found, similarity, target.aim)
    unknown = choose(promise, target.rate, DEFAULT_FALSE_ACCEPT_RATE, target.aim)
    has = np.isfinite(found.own)
    if not has.any():
        raise LikewiseError(
            "calibrate: a validation class must have two images or more (of two groups, if the data has groups), but none has; "
            "validate on other classes"
        )
    near, right = np.maximum(found.own, found.other)[has], (found.own >= found.other)[has]
    weight, label = weights(found, has)[has], found.y[has]
    sim, probability = fit_probability(near, right, weight)
    return {
        "similarity": similarity, "pair": pair, "unknown": unknown, "knot_sim": tuple(sim.tolist()),
        "knot_probability": tuple(probability.tolist()), "gallery": {"rows": rows, "classes": classes},
        "prevalence": float(np.average(right, weights=weight)),
        "curves": curves_of("unknown", promise) | reliability(near, right, weight, label),
    }  # fmt: skip


def curves_of(name: str, promise: Promise) -> dict[str, list[float]]:
    """Return what the figures draw of a promise, at no more than `MAX_CURVE_POINTS` thresholds."""
    every = np.unique(np.linspace(0, len(promise.threshold) - 1, MAX_CURVE_POINTS).round().astype(int))
    values = {
        "threshold": promise.threshold, "errors": promise.errors, "bound": promise.upper, "true_accepts": promise.true_accepts
    }  # fmt: skip
    return {f"{name}_{what}": np.round(value[every], 7).tolist() for what, value in values.items()}


def at_most(rows: Int[np.ndarray, "n"], label: Int[np.ndarray, "N"], most: int) -> Int[np.ndarray, "m"]:
    """Return the rows, or about `most` of them if there are more: random ones, from all classes as equally as possible.

    If there are too many classes for two rows of each, they are from random classes: a single row has no pair of its class.
    """
    if len(rows) <= most:
        return rows
    shuffled = np.random.default_rng(0).permutation(rows)
    classes, size = np.unique(label[rows], return_counts=True)
    if (needed := np.minimum(size, 2)).sum() > most:
        order = np.random.default_rng(0).permutation(len(classes))
        drawn = classes[order[np.cumsum(needed[order]) <= most]]
        shuffled = shuffled[np.isin(label[shuffled], drawn)]
    order = np.argsort(label[shuffled], kind="stable")
    y = label[shuffled][order]
    turn = np.arange(len(y)) - np.searchsorted(y, y)  # the how-manieth row of its class
    return np.sort(shuffled[order][np.argsort(turn, kind="stable")[:most]])


MAX_GALLERY_PAIRS = 2_000_000_000
"""Most similarities between validation images and the gallery; for a larger gallery, fewer images of every class are compared."""


def calibrate_gallery(run: Path, z: Float[np.ndarray, "N D"], label_names: Sequence[str]) -> Calibration:
    """Return the calibration of a run for another gallery: the pair threshold stays, `unknown` and the probability change.

    More rows give more false accepts, so images of validation classes are searched in this gallery, without their own class if
    it is there. The rate is that of `likewise calibrate`; where that was the default, it is the default here too.

    Args:
        run: the run folder, or a folder with its calibration.json and calibration.npz.
        z: embeddings of the gallery, as the network of the run computes them.
        label_names: the name of the class of every row of the gallery.
    """
    known, held = read_calibration(Path(run)), read_validation(Path(run))
    if known is None or held is None:
        raise LikewiseError(f"calibrate: '{run}' is not calibrated; run `likewise calibrate {run}` first")
    if len(z) != len(label_names) or not len(z) or z.shape[1:] != held.z.shape[1:]:
        raise LikewiseError(
            f"calibrate: the gallery must have one class name for each row of {held.z.shape[1]} numbers, got {z.shape} and "
            f"{len(label_names)} names; embed it with the network of the run"
        )
    number = {name: label for label, name in enumerate(held.class_name)}
    y = np.asarray([number.setdefault(name, len(number)) for name in label_names], np.int64)
    most = max(1, MAX_GALLERY_PAIRS // len(z))
    kept = at_most(np.arange(len(held.y)), held.y, most)
    used, label = np.unique(held.y[kept], return_inverse=True)
    group = None if held.group is None else held.group[kept]
    names = tuple(held.class_name[c] for c in used)
    place = np.full(len(number), -1)
    place[used] = np.arange(len(used))
    place[len(held.class_name) :] = len(used) + np.arange(len(number) - len(held.class_name))
    part = Validation(held.z[kept], label, names, held.similarity, group)
    return build_for_gallery(part, known, aim_of(known), z, place[y])


def aim_of(known: Calibration) -> Target:
    """Return what a run was calibrated for."""
    rate = None if known.about.get("rate") == "default" else known.unknown.rate
    return Target("precision" if known.unknown.aim == "precision" else "false accepts", rate)


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
    sim = sim.astype(np.float64)
    mean, spread = sim.mean(), max(float(sim.std()), 1e-9)
    scaled = (sim - mean) / spread
    knots = np.unique(np.linspace(sim.min(), sim.max(), CURVE_KNOT_COUNT))
    level = np.full(len(knots), np.average(right, weights=weight))
    if right.any() and not right.all():
        at_mean, slope = fit_logistic(scaled, right, weight * (len(sim) / weight.sum()))
        if slope > 0:
            level = expit(at_mean + slope * (knots - mean) / spread)
    end = 1 / (len(sim) + 2)
    return knots, np.clip(level, end, 1 - end)


def fit_logistic(
    x: Float[np.ndarray, "N"], right: Bool[np.ndarray, "N"], weight: Float[np.ndarray, "N"]
) -> tuple[float, float]:
    """Return intercept and slope of a weighted logistic regression on one variable, with a small penalty on the slope.

    Formula: the minimum of sum_i w_i log(1 + exp(-t_i (a + b x_i))) + b^2 / (2 INVERSE_PENALTY_WEIGHT), t_i = 1 or -1
    """
    sign = np.where(right, 1.0, -1.0)

    def loss(line: Float[np.ndarray, "2"]) -> tuple[float, Float[np.ndarray, "2"]]:
        score = sign * (line[0] + line[1] * x)
        pull = -sign * weight * expit(-score)
        value = weight @ np.logaddexp(0, -score) + line[1] ** 2 / (2 * INVERSE_PENALTY_WEIGHT)
        return value, np.array([pull.sum(), pull @ x + line[1] / INVERSE_PENALTY_WEIGHT])

    start = np.array([logit(np.average(right, weights=weight)), 0.0])
    at_zero, slope = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return float(at_zero), float(slope)


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
