"""Thresholds with a promise: for pairs of images, and for the nearest neighbour of an image that may be of no known class.

They are chosen from similarities between validation samples (shares of accepted pairs of classes, and nearest neighbours), with
upper bounds of the error rates on new classes: classes are the units, not images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

from likewise.runs.calibration import Threshold

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


GRID_QUANTILE_COUNT = 400
"""Thresholds at quantiles of the similarities of different classes, denser towards the most similar."""

GRID_STEPS = 64
"""Thresholds with equal steps above these quantiles."""

MAX_SAMPLED_PAIRS = 1_000_000
"""Most random pairs that the quantiles are read from."""

BLOCK_CELLS = 1 << 22
"""Most similarities held in memory at a time."""


class PairRates(NamedTuple):
    """Share of accepted pairs at every threshold. Every class, and every pair of classes, counts the same.

    `different`: mean over the other classes, for each class. `same`: for each class with pairs. `prevalence`: share of the pairs
    of images that have the same class.
    """

    threshold: Float[np.ndarray, "K"]
    different: Float[np.ndarray, "C K"]
    same: Float[np.ndarray, "S K"]
    same_class: Int[np.ndarray, "S"]
    prevalence: float


class Nearest(NamedTuple):
    """The nearest neighbours of every query: `own`, of its class (-inf if it has none); `other`, of another class.

    In a gallery of validation classes, `other_class` is the class of the neighbour, and `second` is the nearest of the third
    classes. In a gallery of other classes, both are None.
    """

    y: Int[np.ndarray, "N"]
    own: Float[np.ndarray, "N"]
    other: Float[np.ndarray, "N"]
    other_class: Int[np.ndarray, "N"] | None = None
    second: Float[np.ndarray, "N"] | None = None


def prepare(z: Float[np.ndarray, "N D"], similarity: str) -> Float[np.ndarray, "N D"]:
    """Return embeddings as float32, at unit length for the cosine."""
    z = np.asarray(z, np.float32)
    return z / np.linalg.norm(z, axis=1, keepdims=True) if similarity == "cosine" else z


def compare(a: Float[np.ndarray, "A D"], b: Float[np.ndarray, "B D"], similarity: str) -> Float[np.ndarray, "A B"]:
    """Return the similarities of prepared embeddings: the cosine, or minus the Euclidean distance."""
    product = a @ b.T
    if similarity == "cosine":
        return product
    square = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * product
    return -np.sqrt(np.maximum(square, 0))


def make_grid(sim: Float[np.ndarray, "N"], similarity: str) -> Float[np.ndarray, "K"]:
    """Return ascending thresholds for these similarities of different classes; none of them reaches the last."""
    share = np.geomspace(1.0, 1.0 / max(len(sim), 10), GRID_QUANTILE_COUNT)
    quantile = np.quantile(sim.astype(np.float64), 1 - share)
    ideal = 1.0 if similarity == "cosine" else 0.0  # the similarity of equal embeddings
    beyond = ideal + 1e-3 * max(ideal - float(quantile[0]), 1e-3)  # above every rounding of it
    return np.unique(np.concatenate([quantile, np.linspace(quantile[-1], beyond, GRID_STEPS + 1)]))


def accepted(
    sim: Float[np.ndarray, "N"],
    unit: Int[np.ndarray, "N"],
    weight: Float[np.ndarray, "N"],
    threshold: Float[np.ndarray, "K"],
    units: int,
) -> Float[np.ndarray, "U K"]:
    """Return the summed weight of the similarities of every unit that reach each threshold."""
    steps = len(threshold) + 1
    place = np.searchsorted(threshold, sim, side="right")
    at = np.bincount(unit * steps + place, weight, minlength=units * steps).reshape(units, steps)
    return at[:, ::-1].cumsum(1)[:, ::-1][:, 1:]


def pair_rates(
    z: Float[np.ndarray, "N D"], y: Int[np.ndarray, "N"], group: Int[np.ndarray, "N"] | None, similarity: str
) -> PairRates:
    """Return the shares of accepted pairs of prepared embeddings with labels 0 to C - 1.

    Two images of one class and one group (see `Items`) are no pair.
    """
    count, classes = np.bincount(y), int(y.max()) + 1
    threshold = make_grid(sample_different(z, y, similarity), similarity)
    different, same, same_class, pairs = np.zeros((classes, len(threshold))), [], [], 0.0
    for c in range(classes):
        rows = np.flatnonzero(y == c)
        others = y != c
        for part in blocks(rows, len(y)):
            sim = compare(z[part], z, similarity)
            weight = np.where(others, 1 / count[y], 0.0) / (count[c] * (classes - 1))
            weight = np.broadcast_to(weight, sim.shape).ravel()
            different[c] += accepted(sim.ravel(), np.zeros(sim.size, np.int64), weight, threshold, 1)[0]
        first, second = np.triu_indices(len(rows), 1)
        apart = ~same_group(group, rows[first], rows[second])
        if apart.any():
            sim = compare(z[rows], z[rows], similarity)[first, second][apart]
            share = np.full(len(sim), 1 / len(sim))
            same.append(accepted(sim, np.zeros(len(sim), np.int64), share, threshold, 1)[0])
            same_class.append(c)
            pairs += len(sim)
    apart_pairs = (len(y) ** 2 - (count**2).sum()) / 2
    table = np.asarray(same).reshape(-1, len(threshold))
    return PairRates(threshold, different, table, np.asarray(same_class, np.int64), pairs / (pairs + apart_pairs))


def sample_different(z: Float[np.ndarray, "N D"], y: Int[np.ndarray, "N"], similarity: str) -> Float[np.ndarray, "n"]:
    """Return similarities of random pairs of different classes, always the same."""
    rng = np.random.default_rng(0)
    drawn = min(MAX_SAMPLED_PAIRS, 4 * len(y) ** 2)
    a, b = rng.integers(len(y), size=(2, drawn))
    a, b = a[y[a] != y[b]], b[y[a] != y[b]]
    product = np.concatenate([(z[a[p]] * z[b[p]]).sum(1) for p in blocks(np.arange(len(a)), z.shape[1])])
    if similarity == "cosine":
        return product
    square = (z**2).sum(1)
    return -np.sqrt(np.maximum(square[a] + square[b] - 2 * product, 0))


def nearest_among(
    z: Float[np.ndarray, "N D"], y: Int[np.ndarray, "N"], group: Int[np.ndarray, "N"] | None, similarity: str
) -> Nearest:
    """Return the nearest neighbours of validation samples among each other; labels are 0 to C - 1."""
    order = np.argsort(y, kind="stable")
    z, y, group = z[order], y[order], None if group is None else group[order]
    start = np.searchsorted(y, np.arange(int(y.max()) + 1))
    found = []
    for part in blocks(np.arange(len(y)), len(y)):
        sim, place = compare(z[part], z, similarity), np.arange(len(part))
        mine = y[part][:, None] == y
        sim[
            (mine & same_group(group, part[:, None], np.arange(len(y)))) | (part[:, None] == np.arange(len(y)))
        ] = -np.inf
        best = np.maximum.reduceat(sim, start, axis=1)
        own = best[place, y[part]].copy()
        best[place, y[part]] = -np.inf
        nearest = best.argmax(1)
        other = best[place, nearest].copy()
        best[place, nearest] = -np.inf
        found.append((own, other, nearest, best.max(1)))
    own, other, other_class, second = (np.concatenate(column) for column in zip(*found, strict=True))
    return Nearest(y, own, other, other_class, second)


def nearest_in(
    z: Float[np.ndarray, "N D"],
    y: Int[np.ndarray, "N"],
    group: Int[np.ndarray, "N"] | None,
    similarity: str,
    gallery: Float[np.ndarray, "G D"],
    gallery_y: Int[np.ndarray, "G"],
) -> Nearest:
    """Return the nearest neighbours of validation samples in a gallery of other classes.

    `own` is what it would be if the class of the sample were in the gallery too: the most similar of as many random samples of
    its class as a class of the gallery has (the median). `gallery_y`: labels; a class of the validation has the same label.
    """
    size, rng = int(np.median(np.unique(gallery_y, return_counts=True)[1])), np.random.default_rng(0)
    other = np.full(len(y), -np.inf, np.float32)
    for part in blocks(np.arange(len(y)), len(gallery)):
        sim = compare(z[part], gallery, similarity)
        sim[y[part][:, None] == gallery_y] = -np.inf
        other[part] = sim.max(1)
    own = np.full(len(y), -np.inf, np.float32)
    for c in range(int(y.max()) + 1):
        rows = np.flatnonzero(y == c)
        sim = compare(z[rows], z[rows], similarity)
        np.fill_diagonal(sim, -np.inf)
        sim[same_group(group, rows[:, None], rows)] = -np.inf
        rank = rng.random(sim.shape)
        rank[~np.isfinite(sim)] = 2.0
        drawn = rank <= np.sort(rank, 1)[:, min(size, len(rows)) - 1][:, None]
        own[rows] = np.where(drawn, sim, -np.inf).max(1)
    return Nearest(y, own, other)


def same_group(
    group: Int[np.ndarray, "N"] | None, a: Int[np.ndarray, "..."], b: Int[np.ndarray, "..."]
) -> Bool[np.ndarray, "..."]:
    """Return which pairs of rows are in one group; none without groups."""
    if group is None:
        return np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)), bool)
    return (group[a] == group[b]) & (group[a] >= 0)


def blocks(rows: Int[np.ndarray, "n"], width: int) -> Iterator[Int[np.ndarray, "b"]]:
    """Yield the rows in parts whose similarities to `width` others fit into the memory."""
    step = max(1, BLOCK_CELLS // max(width, 1))
    for first in range(0, len(rows), step):
        yield rows[first : first + step]


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


PROMISE_WORDS = {
    ("pair", "false accepts"): "at most {} of pairs of images of two classes are taken for one class",
    (
        "unknown",
        "false accepts",
    ): "at most {} of images of a class that is not in the gallery are taken for a known class",
    (
        "pair",
        "precision",
    ): "at least {} of accepted pairs show one class, if such pairs are as frequent as in validation",
    (
        "unknown",
        "precision",
    ): "at least {} of accepted images get the right class, if the class of every image is in the gallery",
}
"""Kind and aim of a threshold -> its promise; {} is the rate."""

ACCEPTED_WORDS = {"pair": "pairs of one class", "unknown": "images of known classes"}
"""Kind of a threshold -> what should be accepted."""


def describe_promise(threshold: Threshold, kind: str = "unknown") -> str:
    """Return the promise of a threshold ("pair" or "unknown") in words, or why there is none."""
    if threshold.value is None:
        return f"No threshold: {threshold.reason}."
    rate = 1 - threshold.rate if threshold.aim == "precision" else threshold.rate
    words = PROMISE_WORDS[kind, threshold.aim].format(percent(rate))
    found = f"Among {ACCEPTED_WORDS[kind]}, {percent(threshold.true_accepts)} are accepted."
    first = f"On new classes like the {threshold.classes} validation classes, in {percent(PROMISE_LEVEL)} of draws, {words}."
    return first if math.isnan(threshold.true_accepts) else f"{first} {found}"


def percent(share: float) -> str:
    """Return a share in percent with three digits at most."""
    return f"{100 * share:.3g} %"
