from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge
from jaxtyping import Float, Int

from likewise.core.argument_checks import Count
from likewise.learn.samplers._class_index import Lonely
from likewise.learn.samplers._embedding_sampler import EmbeddingSampler


class FrechetMatching(EmbeddingSampler):
    """Batches whose embeddings have nearly the mean and covariance of a large sample of the data (FRD).

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020 (FRD).
    Formula: B* = pool rows and b_1..b_m from B*, per_class samples of a class each;
        a batch = arg min_b |mu - mu*|^2 + tr(S + S* - 2 (S S*)^(1/2)), mu and S mean and covariance of b, starred of B*
    Differs: tr (S S*)^(1/2) = sum of the roots of the eigenvalues of A S A, A = S*^(1/2), which holds for singular S too, so
        that nothing is added to the diagonals. Pool and candidates repeat a class only after all others, and an image only if
        its class has no other. Embeddings have unit length, also for losses on raw embeddings.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: samples in a batch. Study: 112.
        per_class: samples of each class in a batch. Study: 2.
        pool: number of rows of B*; all rows if there are fewer. Study: 512.
        candidates: m, number of candidate batches per batch. Study: 10.
        lonely: what to do with classes of a single sample: "error", or "skip" to train without them.
        class_names: names of the classes, for errors; the run fills it in.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        batch: Annotated[int, Ge(2)] = 112,
        per_class: Count = 2,
        pool: Count = 512,
        candidates: Count = 10,
        lonely: Lonely = "error",
        class_names: tuple[str, ...] | None = None,
        seed: int = 0,
    ):
        super().__init__(labels, batch, per_class, lonely, class_names, seed, pool)
        self.candidates = candidates

    def _choose(self, z: Float[np.ndarray, "N D"], number: int) -> list[list[int]]:
        return self._best(z, number, frechet)


def frechet(z: Float[np.ndarray, "n D"], tries: Int[np.ndarray, "M B"]) -> Float[np.ndarray, "M"]:
    """Return the Frechet distance between the Gaussian of each candidate's embeddings and that of the pool."""
    z = z.astype(np.float64)
    aim = z.mean(0)
    cov = np.atleast_2d(np.cov(z.T))
    value, vector = np.linalg.eigh(cov)
    root = (vector * np.sqrt(np.maximum(value, 0))) @ vector.T  # A
    x = z[tries]
    mean = x.mean(1)
    x = (x - mean[:, None]) / np.sqrt(x.shape[1] - 1)  # x'x = S
    # half' half = A S A; half half' has the same non-zero eigenvalues, and the smaller matrix is faster.
    half = x @ root
    gram = half @ half.swapaxes(1, 2) if x.shape[1] < x.shape[2] else half.swapaxes(1, 2) @ half
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0)).sum(1)
    return np.square(mean - aim).sum(1) + np.square(x).sum((1, 2)) + np.trace(cov) - 2 * cross
