"""A calibration from embeddings of validation classes: both thresholds, the probability curve, and what the figures draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from likewise.core.types import LikewiseError
from likewise.deploy.calibration.probability import fit_probability, reliability
from likewise.deploy.calibration.similarities import Nearest, nearest_among, nearest_in, pair_rates, prepare
from likewise.deploy.calibration.thresholds import Promise, choose, promise_of_neighbours, promise_of_pairs, weights
from likewise.runs.calibration import Calibration, Threshold, Validation

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
    """Return the rows, or about `most` of them if there are more: random ones, from all classes as equally as possible."""
    if len(rows) <= most:
        return rows
    shuffled = np.random.default_rng(0).permutation(rows)
    order = np.argsort(label[shuffled], kind="stable")
    y = label[shuffled][order]
    turn = np.arange(len(y)) - np.searchsorted(y, y)  # the how-manieth row of its class
    return np.sort(shuffled[order][np.argsort(turn, kind="stable")[:most]])
