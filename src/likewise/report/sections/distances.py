"""Section "Similarities": how similar two samples of a class are, and two of different classes, as histograms over pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.report.section import Section, Study

ALL = 8192
"""Samples of which every pair is counted; of more, each is compared with so many others that the number of pairs stays."""

LARGE = 2048
"""Samples of a class of which every pair is counted; so many are drawn from a larger one, and count for all its pairs."""

FINE, BINS = 4800, 80
"""Bins that are counted, and how many are left, at most, once the empty ones at both ends are gone."""


@dataclass(frozen=True, eq=False)
class Distances:
    """How similar two samples of a class are, and two of different ones: shares of pairs in each bin, summing to 1."""

    measure: str  # "cosine similarity" or "distance"
    edge: Float[np.ndarray, "E"]
    within: Float[np.ndarray, "bins"]
    between: Float[np.ndarray, "bins"]
    overlap: float  # the share that both have in common: 0 apart, 1 alike
    pairs: tuple[int, int]  # how many of each were counted


def compare_pairs(
    z: Float[Tensor, "N D"],
    y: Int[np.ndarray, "N"],
    similarity: str = "cosine",
    *,
    all_of: int = ALL,
    large: int = LARGE,
    seed: int = 0,
) -> Distances | None:
    """Histograms of both kinds of pairs on one scale; None where there is no pair of one kind.

    Args:
        z: unit embeddings for "cosine", raw ones for "euclidean".
        all_of: count every pair of so many samples; of more samples, as many pairs as these have.
        large: count every pair of a class of so many samples.
    """
    cosine, rng = similarity == "cosine", np.random.default_rng(seed)
    count = Counts(z, (-1.0, 1.0) if cosine else (0.0, 2 * float(z.norm(dim=1).max()) or 1.0), cosine)
    order = np.argsort(y, kind="stable")
    within, seen_within = np.zeros(FINE), 0
    for own in np.split(order, np.flatnonzero(np.diff(y[order])) + 1):
        n = len(own)
        some = own if n <= large else rng.choice(own, large, replace=False)
        found, seen = count(some, some, np.triu(np.ones((len(some), len(some)), bool), 1))
        within += found * (n * (n - 1) / max(1, len(some) * (len(some) - 1)))
        seen_within += seen
    between, seen_between = np.zeros(FINE), 0
    mixed = np.arange(len(y)) if len(y) <= all_of else rng.permutation(len(y))
    for a, b in blocks(mixed, all_of):
        found, seen = count(a, b, (y[a][:, None] != y[b]) & (a[:, None] < b if len(y) <= all_of else True))
        between, seen_between = between + found, seen_between + seen
    if not seen_within or not seen_between:
        return None
    edge, (within, between) = trim(count.edge, within / within.sum(), between / between.sum())
    return Distances(
        "cosine similarity" if cosine else "distance", edge, within, between, float(np.minimum(within, between).sum()),
        (seen_within, seen_between),
    )  # fmt: skip


def blocks(order: Int[np.ndarray, "N"], all_of: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to be compared with rows: some of them with all others; of many samples, each block with the next one, round about."""
    n = len(order)
    if n <= all_of:
        return [(part, order) for part in np.array_split(order, max(1, n // 1024))]
    parts = np.array_split(order, max(3, n * n // all_of**2 * 2))
    return list(zip(parts, [*parts[1:], parts[0]]))


class Counts:
    """Counts pairs in fine bins between two ends.

    Args:
        ends: of the scale; what lies beyond by rounding counts in the last bin.
    """

    def __init__(self, z: Float[Tensor, "N D"], ends: tuple[float, float], cosine: bool):
        self.z, self.ends, self.cosine = z, ends, cosine
        self.edge = np.linspace(*ends, FINE + 1)

    def __call__(self, a: np.ndarray, b: np.ndarray, pairs: np.ndarray) -> tuple[Float[np.ndarray, "FINE"], int]:
        """Those of rows a and b that are marked, and how many they are."""
        one, other = self.z[a], self.z[b]
        value = one @ other.T if self.cosine else torch.cdist(one, other)
        value = value[torch.as_tensor(pairs)].clamp(*self.ends)
        return torch.histc(value.float(), FINE, *self.ends).double().numpy(), len(value)


def trim(
    edge: Float[np.ndarray, "E"], *shares: Float[np.ndarray, "bins"]
) -> tuple[Float[np.ndarray, "e"], list[Float[np.ndarray, "b"]]]:
    """The same without empty bins at both ends, neighbouring bins added up until no more than `BINS` are left."""
    used = np.flatnonzero(sum(shares))
    span = used[-1] + 1 - used[0]
    each = -(-span // BINS)
    span = -(-span // each) * each
    first = min(used[0], len(edge) - 1 - span)
    return edge[first : first + span + 1 : each], [
        part[first : first + span].reshape(-1, each).sum(1) for part in shares
    ]


def of_run(study: Study) -> Distances | None:
    if study.z is None or study.pool is None:
        return None
    return compare_pairs(study.z, study.pool.label, study.one.similarity, seed=study.config.seed)


SECTION = Section(
    "distances",
    "Similarities",
    "Within and between classes",
    "How similar two samples are: of one class, and of two. The less the two hills overlap, the better classes are told apart.",
    of_run=of_run,
    is_first=True,
)
