"""Similarities between validation samples: shares of accepted pairs of classes, and the nearest neighbours of every sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

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
