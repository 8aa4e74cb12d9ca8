"""Nearest rows and centres: exact ones by hand, and approximate ones with their measured recall."""

import builtins

import pytest
import torch
from torch.nn.functional import normalize

from likewise.labels import neighbour_search
from likewise.labels.neighbour_search import nearest_centres, nearest_neighbours


def clustered(count=4000, clusters=40, dim=16, seed=0):
    random = torch.Generator().manual_seed(seed)
    centre = torch.randn(clusters, dim, generator=random)
    return normalize(centre[torch.arange(count) % clusters] + 0.2 * torch.randn(count, dim, generator=random))


def test_exact_neighbours_by_hand():
    z = clustered(60, 6)
    found = nearest_neighbours(z, 5)
    distance = torch.cdist(z, z).fill_diagonal_(torch.inf)
    assert torch.equal(found.row, distance.topk(5, 1, largest=False).indices) and found.recall == 1
    # a distance is the root of a difference of float32 values near 1
    torch.testing.assert_close(found.distance, distance.topk(5, 1, largest=False).values, rtol=1e-3, atol=1e-3)


def test_approximate_neighbours_are_nearly_the_exact_ones(monkeypatch):
    pytest.importorskip("faiss")
    z = clustered()
    exact = nearest_neighbours(z, 20)
    monkeypatch.setattr(neighbour_search, "MAX_EXACT_PRODUCTS", 0)
    found = nearest_neighbours(z, 20)
    assert not (found.row == torch.arange(len(z))[:, None]).any()  # no row is its own neighbour
    same = (found.row[:, :, None] == exact.row[:, None, :]).any(2).float().mean()
    assert same > 0.95 and found.recall == pytest.approx(float(same), abs=0.05)
    near = found.row == exact.row
    torch.testing.assert_close(found.distance[near], exact.distance[near], rtol=1e-3, atol=1e-3)


def test_probed_cells_are_chosen_by_the_recall(monkeypatch):
    """Features of noise in 16 dimensions, which cells separate badly, and one probed cell to begin with."""
    pytest.importorskip("faiss")
    z = normalize(torch.randn(3000, 16, generator=torch.Generator().manual_seed(0)))
    monkeypatch.setattr(neighbour_search, "MAX_EXACT_PRODUCTS", 0)
    monkeypatch.setattr(neighbour_search, "MAX_ROWS_WITHOUT_CELLS", 0)
    monkeypatch.setattr(neighbour_search, "PROBED_CELLS", 1)
    few = nearest_neighbours(z, 10)
    assert few.recall < 0.5
    found = nearest_neighbours(z, 10, recall=0.9)
    assert 0.9 <= found.recall <= 1 and (found.distance <= few.distance).float().mean() > 0.95


def test_codes_of_any_dimension(monkeypatch):
    """An odd number of dimensions, one, and more than two per code: the recall is that of a search of the same rows by hand."""
    faiss = pytest.importorskip("faiss")
    for dim in (1, 7, 16, 300):
        z = normalize(torch.randn(500, dim, generator=torch.Generator().manual_seed(0)))
        index = neighbour_search.code_index(500, z, 0)
        assert index.d == dim and index.ntotal == 500 and faiss.try_extract_index_ivf(index) is None
        monkeypatch.setattr(neighbour_search, "MAX_EXACT_PRODUCTS", 0)
        found = nearest_neighbours(z, 5)
        monkeypatch.undo()
        exact = nearest_neighbours(z, 5)
        same = (found.distance - exact.distance).abs() < 1e-3  # by distance: in one dimension all rows are at 1 or -1
        assert same.float().mean() > (0.8 if dim > 1 else 0.99)


def test_a_query_whose_cells_hold_too_few_rows_has_fewer_neighbours(monkeypatch):
    """One of 196 cells of three rows: neighbours that were not found have an infinite distance, also those of row 0."""
    pytest.importorskip("faiss")
    monkeypatch.setattr(neighbour_search, "MAX_EXACT_PRODUCTS", 0)
    monkeypatch.setattr(neighbour_search, "MAX_ROWS_WITHOUT_CELLS", 0)
    monkeypatch.setattr(neighbour_search, "PROBED_CELLS", 1)
    found = nearest_neighbours(clustered(600, 6), 20)
    assert found.row.shape == (600, 20) and not found.distance[0].isfinite().all() and found.distance[0, 0].isfinite()


def test_faiss_and_torch_find_the_same_neighbours(monkeypatch):
    """Above a number of products faiss computes the exact search, also of copies."""
    pytest.importorskip("faiss")
    z = clustered(700, 7)
    z[100:109] = z[0]
    rows = nearest_neighbours(z, 5)
    monkeypatch.setattr(neighbour_search, "MIN_FAISS_PRODUCTS", 0)
    found = nearest_neighbours(z, 5)
    torch.testing.assert_close(found.distance, rows.distance, rtol=1e-3, atol=1e-3)
    copies = torch.tensor([0, *range(100, 109)])
    apart = torch.ones(700, dtype=torch.bool).index_fill_(0, copies, False)
    assert (found.row[apart] == rows.row[apart]).float().mean() > 0.99 and found.recall == 1
    assert torch.isin(found.row[copies], copies).all() and not (found.row == torch.arange(700)[:, None]).any()


def test_exact_copies_are_neighbours_of_each_other(monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(neighbour_search, "MAX_EXACT_PRODUCTS", 0)
    z = clustered(600, 6)
    z[100:104] = z[0]
    found = nearest_neighbours(z, 8)
    assert set(found.row[0, :4].tolist()) == {100, 101, 102, 103} and found.distance[0, :4].tolist() == [0] * 4


def test_nearest_centres_exact_and_approximate(monkeypatch):
    pytest.importorskip("faiss")
    z, centre = clustered(500), clustered(3000, 60, seed=1)
    exact = nearest_centres(z, centre, 4)
    assert torch.equal(exact, torch.cdist(z, centre).topk(4, 1, largest=False).indices)
    monkeypatch.setattr(neighbour_search, "MIN_FAISS_PRODUCTS", 0)
    found = nearest_centres(z, centre, 4)
    assert (found[:, 0] == exact[:, 0]).float().mean() > 0.8


def test_without_faiss_the_search_is_exact_and_warns(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name == "faiss":
            raise ImportError(name)
        return real(name, *rest)

    z = clustered(300, 6)
    exact = nearest_neighbours(z, 5)
    monkeypatch.setattr(neighbour_search, "MAX_EXACT_PRODUCTS", 0)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.warns(UserWarning, match="faiss"):
        found = nearest_neighbours(z, 5)
    assert torch.equal(found.row, exact.row) and found.recall == 1
