from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge
from jaxtyping import Float, Int

from likewise.core.argument_checks import Count
from likewise.learn.samplers._class_index import Lonely
from likewise.learn.samplers._embedding_sampler import EmbeddingSampler


class DistanceMatching(EmbeddingSampler):
    """Batches whose pairwise distances have the same distribution as those of a large sample of the data (DDM).

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020 (DDM).
    Formula: B* = pool rows and b_1..b_m from B*, per_class samples of a class each; h = shares of all pairwise distances in
        bins over [min, max] of B*; a batch = arg min_b sum_bins |CDF(h_b) - CDF(h*)| * bin width (Wasserstein-1)
    Differs: pool and candidates repeat a class only after all others, and an image only if its class has no other. The
        study's code compares the sorted bin heights of the histograms, without the positions of the bins; see published_cost.
        Distances are between unit embeddings, also for losses on raw embeddings.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: samples in a batch. Study: 112.
        per_class: samples of each class in a batch. Study: 2.
        pool: number of rows of B*; all rows if there are fewer. Study: 512.
        candidates: m, number of candidate batches per batch. Study: 10.
        bins: number of bins of the histograms. Study: 50.
        lonely: what to do with classes of a single sample: "error", or "skip" to train without them.
        class_names: names of the classes, for errors; the run fills it in.
        published_cost: use the cost of the published code: |mean - mean*| + |std - std*| of the embeddings, plus 150 times the
            Wasserstein-1 distance of the two sets of bin heights, which ignores the positions of the bins.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        batch: Annotated[int, Ge(2)] = 112,
        per_class: Count = 2,
        pool: Count = 512,
        candidates: Count = 10,
        bins: Count = 50,
        lonely: Lonely = "error",
        class_names: tuple[str, ...] | None = None,
        published_cost: bool = False,
        seed: int = 0,
    ):
        super().__init__(labels, batch, per_class, lonely, class_names, seed, pool)
        self.candidates = candidates
        self.bins = bins
        self.published_cost = published_cost

    def _choose(self, z: Float[np.ndarray, "N D"], number: int) -> list[list[int]]:
        return self._best(z, number, self._cost)

    def _cost(self, z: Float[np.ndarray, "n D"], tries: Int[np.ndarray, "M B"]) -> Float[np.ndarray, "M"]:
        shares, aim, width = histograms(z, tries, self.bins)
        if self.published_cost:
            return moments_apart(z, tries) + 150 * heights_apart(shares, aim)
        return wasserstein(shares, aim, width)


def histograms(
    z: Float[np.ndarray, "n D"], tries: Int[np.ndarray, "M B"], bins: int
) -> tuple[Float[np.ndarray, "M bins"], Float[np.ndarray, "bins"], float]:
    """Return the histograms of pairwise distances of every candidate and of the pool, as shares, and the width of a bin.

    The distances of a candidate are a subset of those of the pool, so each distance is computed and binned once.
    """
    z = z.astype(np.float64)
    square = (z * z).sum(1)
    apart = np.sqrt(np.maximum(square[:, None] + square - 2 * z @ z.T, 0))
    np.fill_diagonal(apart, np.inf)
    low = apart.min()
    np.fill_diagonal(apart, 0)
    width = float(apart.max() - low) / bins
    # If all distances are equal, they are in one bin.
    place = np.clip((apart - low) / (width or 1), 0, bins - 1).astype(np.int64)
    among = place[tries[:, :, None], tries[:, None, :]] + bins * np.arange(len(tries))[:, None, None]
    counts = np.bincount(among.reshape(-1), minlength=len(tries) * bins).reshape(len(tries), bins)
    total = np.bincount(place.reshape(-1), minlength=bins)
    counts[:, 0] -= tries.shape[1]  # remove the pairs of a row with itself, which are in the lowest bin
    total[0] -= len(z)
    return counts / counts.sum(1, keepdims=True), total / total.sum(), width


def wasserstein(
    shares: Float[np.ndarray, "M bins"], aim: Float[np.ndarray, "bins"], width: float
) -> Float[np.ndarray, "M"]:
    """Return the Wasserstein-1 distance of each candidate's histogram to that of the pool (`aim`)."""
    return np.abs(np.cumsum(shares - aim, axis=1)).sum(1) * width


def heights_apart(shares: Float[np.ndarray, "M bins"], aim: Float[np.ndarray, "bins"]) -> Float[np.ndarray, "M"]:
    """Return the Wasserstein-1 distance between the bin heights taken as samples; it ignores the order of the bins."""
    return np.abs(np.sort(shares, axis=1) - np.sort(aim)).mean(1)


def moments_apart(z: Float[np.ndarray, "n D"], tries: Int[np.ndarray, "M B"]) -> Float[np.ndarray, "M"]:
    """Return the distance of the mean, plus that of the standard deviation, of each candidate to those of the pool."""
    x = z[tries]
    mean, std = x.mean(1) - z.mean(0), x.std(1) - z.std(0)
    return np.linalg.norm(mean, axis=1) + np.linalg.norm(std, axis=1)
