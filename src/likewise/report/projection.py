"""Maps of an embedding: a point in the plane for every sample, by PCA, t-SNE or UMAP."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError, pip_install
from likewise.core.retrieval.ranking import nearest

CHUNK_ROWS = 8192
"""Rows per chunk, so that float64 copies stay small."""

TSNE_PERPLEXITY = 30
"""Perplexity of t-SNE; lower for few samples."""

TSNE_ITERATIONS = (250, 500)
"""Iterations of t-SNE with early exaggeration, and after it."""

PLACEMENT_NEIGHBOURS = 5
"""Mapped neighbours whose median is the point of a sample that was not mapped itself."""

REQUIRED_LIBRARIES = {"tsne": "openTSNE", "umap": "umap"}
"""Value of --map -> module that it imports."""


def pca(z: Float[Tensor, "N D"]) -> Float[np.ndarray, "N 2"]:
    """Return the first two principal components of every sample.

    The sign of an axis makes its largest entry positive, so that the same embedding gives the same map.
    """
    mean = sum(chunk.double().sum(0) for chunk in z.split(CHUNK_ROWS)) / len(z)
    spread = sum((rows := chunk.double() - mean).T @ rows for chunk in z.split(CHUNK_ROWS))
    axes = torch.linalg.eigh(spread).eigenvectors[:, -2:].flip(1)  # eigenvalues ascend
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    flat = (
        torch.cat([(chunk.double() - mean) @ (axes * largest.sign()) for chunk in z.split(CHUNK_ROWS)]).float().numpy()
    )
    return np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))  # embeddings of one dimension lie on a line


def is_installed(method: str) -> bool:
    """Return whether the library of a method ("tsne" or "umap") is installed."""
    return find_spec(REQUIRED_LIBRARIES[method]) is not None


def require_library(method: str) -> None:
    """Raise an error if the library of a method ("tsne" or "umap") is not installed."""
    if not is_installed(method):
        raise LikewiseError(
            f"report: --map {method} needs {REQUIRED_LIBRARIES[method]}, which is not installed; "
            f"{pip_install('likewise[map]')}, or use --map pca"
        )


def tsne(
    z: Float[Tensor, "N D"],
    similarity: str = "cosine",
    *,
    most: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Float[np.ndarray, "N 2"]:
    """Return the t-SNE map from exact nearest neighbours, initialised with PCA.

    Args:
        most: number of samples that t-SNE maps, drawn at random; other samples are placed between their nearest mapped
            neighbours. None: all samples.
        progress: called with the finished share of the work, 0 to 1.
    """
    require_library("tsne")
    from openTSNE import TSNE
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    n, report_share = len(z), progress or (lambda share: None)
    some = np.arange(n)
    if most is not None and n > most:
        some = np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
    mapped = z[some]
    k = min(3 * TSNE_PERPLEXITY, len(mapped) - 1)
    if k < 3:
        return pca(z)  # too few samples for neighbourhoods
    near, sim = nearest(mapped, mapped, k, own=torch.arange(len(mapped)), similarity=similarity)
    distance = (2 - 2 * sim).clamp_min(0).sqrt() if similarity == "cosine" else -sim
    known = PrecomputedNeighbors(near.numpy(), distance.double().numpy())
    affinities = PerplexityBasedNN(perplexity=k / 3, knn_index=known, k_neighbors=k, n_jobs=torch.get_num_threads())  # pyright: ignore[reportArgumentType]
    start = pca(mapped).astype(np.float64)
    start *= 1e-4 / max(start[:, 0].std(), 1e-12)
    callback = ProgressCallback(report_share)
    mapper = TSNE(
        early_exaggeration_iter=TSNE_ITERATIONS[0], n_iter=TSNE_ITERATIONS[1], n_jobs=torch.get_num_threads(),
        random_state=seed, callbacks=callback, callbacks_every_iters=ProgressCallback.ITERATIONS_PER_REPORT,
    )  # fmt: skip
    found = np.asarray(mapper.fit(affinities=affinities, initialization=start), np.float32)
    return found if len(some) == n else place_between_neighbours(z, some, found, similarity)


class ProgressCallback:
    """openTSNE callback that reports progress every ITERATIONS_PER_REPORT iterations, over both phases of the optimisation."""

    ITERATIONS_PER_REPORT = 25

    def __init__(self, progress: Callable[[float], None]):
        self.progress, self.done = progress, 0

    def __call__(self, iteration: int, error: float, embedding) -> None:
        self.done += self.ITERATIONS_PER_REPORT
        self.progress(min(1.0, self.done / sum(TSNE_ITERATIONS)))


def place_between_neighbours(
    z: Float[Tensor, "N D"], some: Int[np.ndarray, "m"], found: Float[np.ndarray, "m 2"], similarity: str
) -> Float[np.ndarray, "N 2"]:
    """Return the map of all samples from the map `found` of the rows `some`.

    Every other sample is placed at the median of its nearest mapped neighbours: a single outlier does not move a median.
    """
    out = np.empty((len(z), 2), np.float32)
    out[some] = found
    others = np.setdiff1d(np.arange(len(z)), some)
    near = nearest(z[others], z[some], min(PLACEMENT_NEIGHBOURS, len(some)), similarity=similarity)[0].numpy()
    out[others] = np.median(found[near], axis=1)
    return out


def umap(z: Float[Tensor, "N D"], similarity: str = "cosine", *, seed: int = 0) -> Float[np.ndarray, "N 2"]:
    """Return the UMAP map with the default settings of the library, initialised with PCA."""
    require_library("umap")
    if len(z) < 5:
        return pca(z)
    from umap import UMAP

    start = pca(z)
    start *= 10 / max(float(np.abs(start).max()), 1e-12)
    mapper = UMAP(n_neighbors=min(15, len(z) - 1), metric=similarity, init=start, random_state=seed, n_jobs=1)  # pyright: ignore[reportArgumentType]
    return np.asarray(mapper.fit_transform(z.numpy()), np.float32)
