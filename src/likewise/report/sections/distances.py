"""Section "Similarities": histograms of the similarity of pairs within a class and of pairs from two classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.report.section import Section, Study

MAX_ALL_PAIRS_SAMPLES = 8192
"""Number of samples up to which every pair is counted; above it, the number of counted pairs stays constant."""

MAX_CLASS_SAMPLES = 2048
"""Samples of a class of which every pair is counted; a larger class is represented by this many random samples."""

COUNTED_BINS, MAX_SHOWN_BINS = 4800, 80
"""Number of bins while counting, and largest number after empty bins at both ends are removed and others merged."""

MAX_TAIL_SHARE = 0.001
"""Share of the pairs at either end of a histogram that is drawn in its last bin: a long tail would leave the chart empty."""


@dataclass(frozen=True, eq=False)
class Distances:
    """Histograms of the similarity of pairs within a class and between classes: share of the pairs in each bin."""

    measure: str  # "cosine similarity" or "distance"
    edge: Float[np.ndarray, "E"]
    within: Float[np.ndarray, "bins"]
    between: Float[np.ndarray, "bins"]
    overlap: float  # common area of both histograms: 0 disjoint, 1 equal
    pairs: tuple[int, int]  # number of counted pairs within and between


def compare_pairs(
    z: Float[Tensor, "N D"],
    y: Int[np.ndarray, "N"],
    similarity: str = "cosine",
    *,
    all_of: int = MAX_ALL_PAIRS_SAMPLES,
    large: int = MAX_CLASS_SAMPLES,
    seed: int = 0,
) -> Distances | None:
    """Return histograms of both kinds of pairs on one scale; None if there is no pair of one kind.

    Args:
        z: unit embeddings for "cosine", raw ones for "euclidean".
        all_of: number of samples up to which every pair is counted.
        large: number of samples of a class up to which every pair is counted.
    """
    cosine, rng = similarity == "cosine", np.random.default_rng(seed)
    count = PairHistogram(z, (-1.0, 1.0) if cosine else (0.0, 2 * float(z.norm(dim=1).max()) or 1.0), cosine)
    order = np.argsort(y, kind="stable")
    within, counted_within = np.zeros(COUNTED_BINS), 0
    for own in np.split(order, np.flatnonzero(np.diff(y[order])) + 1):
        n = len(own)
        some = own if n <= large else rng.choice(own, large, replace=False)
        found, counted = count(some, some, np.triu(np.ones((len(some), len(some)), bool), 1))
        within += found * (n * (n - 1) / max(1, len(some) * (len(some) - 1)))
        counted_within += counted
    between, counted_between = np.zeros(COUNTED_BINS), 0
    mixed = np.arange(len(y)) if len(y) <= all_of else rng.permutation(len(y))
    for a, b in row_blocks(mixed, all_of):
        found, counted = count(a, b, (y[a][:, None] != y[b]) & (a[:, None] < b if len(y) <= all_of else True))
        between, counted_between = between + found, counted_between + counted
    if not counted_within or not counted_between:
        return None
    edge, (within, between) = trim(count.edge, within / within.sum(), between / between.sum())
    return Distances(
        "cosine similarity" if cosine else "distance", edge, within, between, float(np.minimum(within, between).sum()),
        (counted_within, counted_between),
    )  # fmt: skip


def row_blocks(order: Int[np.ndarray, "N"], all_of: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of row blocks to compare: each block with all rows; above `all_of` samples, with the next block."""
    n = len(order)
    if n <= all_of:
        return [(block, order) for block in np.array_split(order, max(1, n // 1024))]
    blocks = np.array_split(order, max(3, n * n // all_of**2 * 2))
    return list(zip(blocks, [*blocks[1:], blocks[0]]))


class PairHistogram:
    """Counts the similarities of pairs in fine bins.

    Args:
        ends: lowest and highest similarity; a value beyond them by rounding counts in the last bin.
    """

    def __init__(self, z: Float[Tensor, "N D"], ends: tuple[float, float], cosine: bool):
        self.z, self.ends, self.cosine = z, ends, cosine
        self.edge = np.linspace(*ends, COUNTED_BINS + 1)

    def __call__(self, a: np.ndarray, b: np.ndarray, pairs: np.ndarray) -> tuple[Float[np.ndarray, "bins"], int]:
        """Return the histogram of the pairs of rows `a` and `b` that the mask `pairs` selects, and their number."""
        one, other = self.z[a], self.z[b]
        value = one @ other.T if self.cosine else torch.cdist(one, other)
        value = value[torch.as_tensor(pairs)].clamp(*self.ends)
        return torch.histc(value.float(), COUNTED_BINS, *self.ends).double().numpy(), len(value)


def trim(
    edge: Float[np.ndarray, "E"], *shares: Float[np.ndarray, "bins"]
) -> tuple[Float[np.ndarray, "e"], list[Float[np.ndarray, "b"]]]:
    """Return edges and shares without the bins at both ends that hold less than `MAX_TAIL_SHARE` of every kind.

    The last bins then hold the pairs beyond them too. Adjacent bins are merged down to `MAX_SHOWN_BINS`.
    """
    used = np.flatnonzero(np.any([in_body(share) for share in shares], axis=0))
    span = used[-1] + 1 - used[0]
    each = -(-span // MAX_SHOWN_BINS)
    span = -(-span // each) * each
    first = min(used[0], len(edge) - 1 - span)
    shown = []
    for share in shares:
        body = share[first : first + span].copy()
        body[0] += share[:first].sum()
        body[-1] += share[first + span :].sum()
        shown.append(body.reshape(-1, each).sum(1))
    return edge[first : first + span + 1 : each], shown


def in_body(share: Float[np.ndarray, "bins"]) -> Bool[np.ndarray, "bins"]:
    """Return a mask of the bins that are not in a tail with less than `MAX_TAIL_SHARE` of the histogram, nor empty."""
    up = np.cumsum(share) / (share.sum() or 1.0)
    down = np.cumsum(share[::-1])[::-1] / (share.sum() or 1.0)
    return (up >= MAX_TAIL_SHARE) & (down >= MAX_TAIL_SHARE) & (share > 0)


def of_run(study: Study) -> Distances | None:
    if study.z is None or study.pool is None:
        return None
    return compare_pairs(study.z, study.pool.label, study.one.similarity, seed=study.config.seed)


SECTION = Section(
    "distances",
    "Similarities",
    "Similarity within and between classes",
    "Histograms of the similarity of pairs from one class and from two classes. Less overlap means better separated classes.",
    of_run=of_run,
    is_first=True,
)
