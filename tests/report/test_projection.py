"""Maps: PCA as scikit-learn has it, t-SNE and UMAP that keep clusters apart, and plain words where a library is missing."""

import sys
import types

import numpy as np
import pytest
import torch
from likewise.types import LikewiseError
from torch.nn import functional as F

from likewise.report import projection
from likewise.report.projection import pca, place_between_neighbours, require_library, tsne, umap


def clusters(n=120, classes=3, dim=8, spread=0.2):
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    return F.normalize(torch.eye(classes, dim)[y] + spread * torch.randn(n, dim, generator=rng), dim=1), y.numpy()


@pytest.mark.parity
def test_pca_is_that_of_sklearn(monkeypatch):
    from sklearn.decomposition import PCA

    monkeypatch.setattr(projection, "CHUNK_ROWS", 50)  # several chunks
    z = (
        torch.randn(170, 6, generator=torch.Generator().manual_seed(1)) @ torch.diag(torch.tensor([5.0, 3, 2, 1, 1, 1]))
        + 7
    )
    theirs = PCA(2, svd_solver="full").fit_transform(z.double().numpy())
    ours = pca(z)
    assert np.allclose(np.abs(ours), np.abs(theirs), atol=1e-4)


def test_the_sign_of_pca_is_fixed_and_a_line_stays_one():
    z = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))
    centred = (z - z.mean(0)).double().numpy()
    axes = np.linalg.lstsq(centred, pca(z), rcond=None)[0]  # points = centred @ axes
    assert all(axes[np.abs(axes[:, k]).argmax(), k] > 0 for k in range(2))
    line = pca(z[:, :1])
    assert np.allclose(line[:, 1], 0) and np.allclose(np.abs(line[:, 0]), np.abs(centred[:, 0]), atol=1e-6)


def purity(points, y):
    """Share of points whose nearest point is of their class."""
    away = ((points[:, None] - points) ** 2).sum(-1) + np.diag(np.full(len(points), np.inf))
    return (y[away.argmin(1)] == y).mean()


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_tsne_keeps_clusters_together_also_those_it_did_not_map(similarity, monkeypatch):
    pytest.importorskip("openTSNE")
    monkeypatch.setattr(projection, "TSNE_ITERATIONS", (50, 100))
    z, y = clusters()
    told = []
    points = tsne(z, similarity, most=90, seed=3, progress=told.append)
    assert points.shape == (120, 2) and np.isfinite(points).all() and purity(points, y) > 0.95
    assert told == sorted(told) and told[-1] == 1
    assert tsne(z[:3]).shape == (3, 2)


def test_samples_that_were_not_mapped_stand_at_the_median_of_their_nearest(monkeypatch):
    monkeypatch.setattr(projection, "PLACEMENT_NEIGHBOURS", 3)
    z, _ = clusters(30)
    some, found = np.arange(0, 30, 2), np.random.default_rng(0).normal(size=(15, 2)).astype(np.float32)
    points = place_between_neighbours(z, some, found, "cosine")
    assert np.array_equal(points[some], found)
    for i in range(1, 30, 2):
        near = sorted(range(15), key=lambda m: -float(z[i] @ z[some[m]]))[:3]
        assert np.allclose(points[i], np.median(found[near], axis=0))


def test_umap_is_asked_for_what_was_meant(monkeypatch):
    asked = {}

    class Umap:
        def __init__(self, **how):
            asked.update(how)

        def fit_transform(self, x):
            return x[:, :2]

    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=Umap))
    monkeypatch.setattr(projection, "find_spec", lambda name: name)
    z, _ = clusters(12)
    assert np.array_equal(umap(z, "euclidean", seed=4), z[:, :2])
    assert asked["metric"] == "euclidean" and asked["random_state"] == 4 and asked["n_neighbors"] == 11
    assert asked["init"].shape == (12, 2) and np.isclose(np.abs(asked["init"]).max(), 10)
    assert umap(z[:3]).shape == (3, 2)


@pytest.mark.slow  # it compiles itself for a minute
def test_umap_keeps_clusters_together():
    pytest.importorskip("umap")
    z, y = clusters(60)
    assert purity(umap(z, seed=1), y) > 0.9


def test_a_missing_library_is_named_with_what_brings_it(monkeypatch):
    monkeypatch.setattr(projection, "find_spec", lambda name: None)
    with pytest.raises(LikewiseError, match=r"tsne needs openTSNE.*'likewise\[map\]'"):
        require_library("tsne")
    with pytest.raises(LikewiseError, match="--map umap needs umap"):
        umap(torch.zeros(9, 2))
