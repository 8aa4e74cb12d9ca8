"""Maps of an embedding: every sample a point in the plane, by PCA, t-SNE or UMAP."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.retrieval.ranking import nearest

CHUNK = 8192
"""Rows taken at a time, so that float64 copies stay small."""

PERPLEXITY = 30
PASSES = (250, 500)
"""Of t-SNE: with the clusters drawn together, and after that."""

BESIDE = 5
"""Mapped neighbours between which a sample is put that was not mapped itself."""

NEEDS = {"tsne": "openTSNE", "umap": "umap"}


def pca(z: Float[Tensor, "N D"]) -> Float[np.ndarray, "N 2"]:
    """The two directions in which the samples differ most. The largest part of each direction is positive, so that the same
    embedding gives the same picture."""
    mean = sum(part.double().sum(0) for part in z.split(CHUNK)) / len(z)
    spread = sum((rows := part.double() - mean).T @ rows for part in z.split(CHUNK))
    axes = torch.linalg.eigh(spread).eigenvectors[:, -2:].flip(1)  # the last are the largest
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    flat = torch.cat([(part.double() - mean) @ (axes * largest.sign()) for part in z.split(CHUNK)]).float().numpy()
    return np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))  # numbers alone lie on a line


def is_installed(method: str) -> bool:
    return find_spec(NEEDS[method]) is not None


def must_have(method: str) -> None:
    """Raise where the library of this method is missing."""
    if not is_installed(method):
        raise LikewiseError(
            f"report: --map {method} needs {NEEDS[method]}, which is not installed; pip install 'likewise[map]', or say "
            "--map pca"
        )


def tsne(
    z: Float[Tensor, "N D"],
    similarity: str = "cosine",
    *,
    most: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Float[np.ndarray, "N 2"]:
    """t-SNE from exact neighbours, started from PCA.

    Args:
        most: map no more samples than this, drawn at random; the others are put between those that they are most similar to.
        progress: called with the share of the work that is done.
    """
    must_have("tsne")
    from openTSNE import TSNE
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    n, tell = len(z), progress or (lambda share: None)
    some = np.arange(n)
    if most is not None and n > most:
        some = np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
    mapped = z[some]
    k = min(3 * PERPLEXITY, len(mapped) - 1)
    if k < 3:
        return pca(z)  # nothing to unfold
    near, sim = nearest(mapped, mapped, k, own=torch.arange(len(mapped)), similarity=similarity)
    away = (2 - 2 * sim).clamp_min(0).sqrt() if similarity == "cosine" else -sim
    known = PrecomputedNeighbors(near.numpy(), away.double().numpy())
    affinities = PerplexityBasedNN(perplexity=k / 3, knn_index=known, k_neighbors=k, n_jobs=torch.get_num_threads())  # pyright: ignore[reportArgumentType]
    start = pca(mapped).astype(np.float64)
    start *= 1e-4 / max(start[:, 0].std(), 1e-12)
    drawn = Counted(tell)
    way = TSNE(
        early_exaggeration_iter=PASSES[0], n_iter=PASSES[1], n_jobs=torch.get_num_threads(), random_state=seed, callbacks=drawn,
        callbacks_every_iters=Counted.EVERY,
    )  # fmt: skip
    found = np.asarray(way.fit(affinities=affinities, initialization=start), np.float32)
    return found if len(some) == n else between(z, some, found, similarity)


class Counted:
    """openTSNE callback: reports progress every EVERY iterations, over both phases."""

    EVERY = 25

    def __init__(self, tell: Callable[[float], None]):
        self.tell, self.done = tell, 0

    def __call__(self, iteration: int, error: float, embedding) -> None:
        self.done += self.EVERY
        self.tell(min(1.0, self.done / sum(PASSES)))


def between(
    z: Float[Tensor, "N D"], some: Int[np.ndarray, "m"], found: Float[np.ndarray, "m 2"], similarity: str
) -> Float[np.ndarray, "N 2"]:
    """The map of all from that of some: the others at the median of their nearest among these, as no far one can pull them."""
    out = np.empty((len(z), 2), np.float32)
    out[some] = found
    others = np.setdiff1d(np.arange(len(z)), some)
    near = nearest(z[others], z[some], min(BESIDE, len(some)), similarity=similarity)[0].numpy()
    out[others] = np.median(found[near], axis=1)
    return out


def umap(z: Float[Tensor, "N D"], similarity: str = "cosine", *, seed: int = 0) -> Float[np.ndarray, "N 2"]:
    """UMAP with its own settings, started from PCA."""
    must_have("umap")
    if len(z) < 5:
        return pca(z)
    from umap import UMAP

    start = pca(z)
    start *= 10 / max(float(np.abs(start).max()), 1e-12)
    way = UMAP(n_neighbors=min(15, len(z) - 1), metric=similarity, init=start, random_state=seed, n_jobs=1)  # pyright: ignore[reportArgumentType]
    return np.asarray(way.fit_transform(z.numpy()), np.float32)
