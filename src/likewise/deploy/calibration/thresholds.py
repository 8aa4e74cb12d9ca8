"""Thresholds with a promise: for pairs of images, and for the nearest neighbour of an image that may be of no known class."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from likewise.deploy.calibration.false_accepts import first_within, smallest_rate, upper_rates
from likewise.deploy.calibration.similarities import Nearest, PairRates, accepted, make_grid
from likewise.runs.calibration import Threshold

LARGEST_RATE = 0.5
"""Bound of the rates that are chosen by default; a threshold with more errors is of no use."""


class Promise(NamedTuple):
    """What a threshold is chosen from, at every threshold: errors, their bound on new classes, and true accepts."""

    threshold: Float[np.ndarray, "K"]
    errors: Float[np.ndarray, "K"]
    upper: Float[np.ndarray, "K"]
    true_accepts: Float[np.ndarray, "K"]
    least: float
    classes: int
    units: str


def choose(promise: Promise, rate: float | None, default: float, aim: str) -> Threshold:
    """Return the lowest threshold that keeps the requested rate, or the refusal of a rate that cannot be promised.

    Args:
        rate: the requested rate; None: the default, or the smallest rate that can be promised if that is larger.
    """
    least = float(max(promise.least, promise.upper.min()))
    requested = max(default, least) if rate is None else rate
    at = first_within(promise.upper, requested) if requested <= max(LARGEST_RATE, rate or 0) else None
    numbers = {"rate": requested, "smallest_rate": least, "classes": promise.classes, "aim": aim}
    if at is None:
        reason = (
            f"{promise.classes} validation classes can promise {words(least, aim)} for {promise.units}, not "
            f"{words(requested, aim)}; request that, or train with more validation classes"
        )
        return Threshold(None, observed=np.nan, true_accepts=np.nan, reason=reason, **numbers)
    return Threshold(
        float(promise.threshold[at]), observed=float(promise.errors[at]), true_accepts=float(promise.true_accepts[at]), **numbers
    )  # fmt: skip


def words(rate: float, aim: str) -> str:
    """Return a rate as text: a false-accept rate rounded up, or a precision rounded down, to three digits."""
    if aim == "precision":
        return f"a precision of {math.floor(1000 * (1 - rate) + 1e-9) / 1000:g}"
    digits = 10.0 ** (2 - math.floor(math.log10(rate)))
    return f"a false-accept rate of {math.ceil(rate * digits - 1e-9) / digits:g}"


def promise_of_pairs(rates: PairRates, aim: str) -> Promise:
    """Return errors and bounds of "the same class from this similarity on".

    The false-accept rate is the mean over pairs of classes of the share of accepted pairs of images. For the aim "precision",
    errors are the share of different classes among accepted pairs, if the share p of all pairs have the same class, as in
    validation: (1 - p) F / ((1 - p) F + p T), with F and T the shares of accepted different and same pairs. There, classes that
    are errors throughout are those that are really one: their pairs are accepted as often as pairs of one class.
    """
    each, classes = rates.different, len(rates.different)
    far = each.mean(0)
    without = (classes * far - 2 * each) / (classes - 2)  # every pair of classes is in two of the sums
    tar = rates.same.mean(0) if len(rates.same) else np.zeros_like(far)
    least, errors = np.full(len(far), smallest_rate(classes * (classes - 1) // 2)), far
    if aim == "precision":
        tar_without = np.broadcast_to(tar, each.shape).copy()
        if len(rates.same) > 1:
            tar_without[rates.same_class] = (len(rates.same) * tar - rates.same) / (len(rates.same) - 1)
        errors = share_of_wrong(far, tar, rates.prevalence)
        without = share_of_wrong(without, tar_without, rates.prevalence)
        rightly = effective_classes(rates.same)
        least = share_of_wrong(least_rates(rightly * (rightly - 1) // 2), np.minimum(rightly, 1), rates.prevalence)
    upper = upper_rates(errors, without, least)
    return Promise(
        rates.threshold, errors, upper, tar, float(least.min()), classes, "pairs of images of two new classes"
    )


def share_of_wrong(far, tar, prevalence: float) -> Float[np.ndarray, "..."]:
    """Return the share of different classes among accepted pairs; 0 if nothing is accepted."""
    wrong, right = (1 - prevalence) * far, prevalence * tar
    return np.divide(wrong, wrong + right, out=np.zeros(np.broadcast(wrong, right).shape), where=wrong + right > 0)


def promise_of_neighbours(found: Nearest, similarity: str, aim: str) -> Promise:
    """Return errors and bounds of "of a known class if the nearest neighbour is at least this similar".

    The false-accept rate is the mean over classes of the share of images whose nearest neighbour in a gallery without their
    class is accepted. For the aim "precision", errors are the share of wrong classes among accepted neighbours, of queries
    whose class is in the gallery.
    """
    threshold, classes = make_grid(found.other, similarity), int(found.y.max()) + 1
    has = np.isfinite(found.own)
    known = weights(found, has)
    near = np.maximum(found.own, found.other)
    right = accepted(near, found.y, known, threshold, classes)
    with_pairs = max(1, int((right[:, 0] > 0).sum()))
    tar, least = right.sum(0) / with_pairs, np.full(len(threshold), smallest_rate(classes))
    if aim == "false accepts":
        total, without, shared = sums(found, found.other, found.second, weights(found), threshold)
        errors, without = total / classes, without / (classes - 1)
        upper = upper_rates(errors, without, least, shared=None if shared is None else shared / classes**2)
    else:
        second = None if found.second is None else np.maximum(found.own, found.second)
        every, every_without, _ = sums(found, near, second, known, threshold)
        mistaken = np.where(found.other > found.own, found.other, -np.inf)
        still = None if found.second is None else np.where(found.second > found.own, found.second, -np.inf)
        wrong, wrong_without, _ = sums(found, mistaken, still, known, threshold)
        errors, without = share(wrong, every), share(wrong_without, every_without)
        least = least_rates(effective_classes(right))
        upper = upper_rates(errors, without, least)
    return Promise(
        threshold, errors, upper, tar, float(least.min()), classes, "nearest neighbours of images of new classes"
    )


def effective_classes(mass: Float[np.ndarray, "C K"]) -> Float[np.ndarray, "K"]:
    """Return how many classes accepted samples come from. Formula: floor( (sum_c m_c)^2 / sum_c m_c^2 ), 0 without any"""
    square = (mass**2).sum(0)
    return np.floor(share(mass.sum(0) ** 2, square) + 1e-9)


def least_rates(units: Float[np.ndarray, "K"]) -> Float[np.ndarray, "K"]:
    """Return the smallest rate of these numbers of units; 1 for none."""
    return np.asarray([smallest_rate(int(count)) for count in units])


def weights(found: Nearest, has=None) -> Float[np.ndarray, "N"]:
    """Return the weight of every query: one in all for each class; 0 for queries that `has` leaves out."""
    has = np.ones(len(found.y), bool) if has is None else has
    return np.where(has, 1 / np.maximum(np.bincount(found.y, has), 1)[found.y], 0.0)


def share(part: Float[np.ndarray, "..."], whole: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return part / whole; 0 if whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def sums(
    found: Nearest,
    sim: Float[np.ndarray, "N"],
    without: Float[np.ndarray, "N"] | None,
    weight: Float[np.ndarray, "N"],
    threshold: Float[np.ndarray, "K"],
) -> tuple[Float[np.ndarray, "K"], Float[np.ndarray, "C K"], Float[np.ndarray, "K"] | None]:
    """Return the weight of accepted queries, the same without each class as query and gallery, and what two classes share.

    Args:
        sim: the similarity of every query.
        without: the same if the class `other_class` were not in the gallery; None: the gallery is fixed.
    """
    classes = int(found.y.max()) + 1
    own = accepted(sim, found.y, weight, threshold, classes)
    total = own.sum(0)
    if without is None or found.other_class is None:
        return total, total - own, None
    pair, place = np.unique(
        np.minimum(found.y, found.other_class) * classes + np.maximum(found.y, found.other_class), return_inverse=True
    )
    lost = accepted(sim, found.other_class, weight, threshold, classes)
    lost -= accepted(without, found.other_class, weight, threshold, classes)
    both = accepted(sim, place, weight, threshold, len(pair)) - accepted(without, place, weight, threshold, len(pair))
    return total, total - own - lost, (both**2).sum(0)
