"""Ranking: what the protocol says is what is ranked."""

import numpy as np
import torch
from likewise.protocols import QueryGallery
from likewise.types import Embedded, Items

from likewise.score import retrieve as module
from likewise.score.retrieve import Scoring, retrieve


def test_positions_are_those_of_the_embeddings_not_of_the_gallery():
    x = np.eye(4, dtype=np.float32)[[0, 1, 0, 1, 2, 2]]
    y = np.array([0, 1, 0, 1, 2, 2])
    query, gallery = np.array([1, 1, 0, 0, 1, 0], bool), np.array([0, 0, 1, 1, 1, 1], bool)
    items = Items("toy", y, tuple("abc"), x=x, query=query, gallery=gallery)
    e = Embedded(torch.as_tensor(x), torch.as_tensor(y), torch.arange(6))
    found = retrieve(e, Scoring(items, QueryGallery()))
    assert found.query.tolist() == [0, 1, 4] and found.row[:, 0].tolist() == [2, 3, 5]


def test_every_share_of_the_queries_is_rounded_alike(monkeypatch):
    """Only the last query is long; whoever ranks the others must not see finer distances for that."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype(np.float32)
    x[29] *= 5000
    y, asks = np.arange(60) % 5, np.arange(60) < 30
    items = Items("toy", y, tuple("abcde"), x=x, query=asks, gallery=~asks)
    e = Embedded(torch.as_tensor(x), torch.as_tensor(y), torch.arange(60))
    shares = []
    monkeypatch.setattr(
        module,
        "rank_in_shares",
        lambda n, some: shares.extend([some(slice(0, 15)), some(slice(15, n))]) or some(slice(n)),
    )
    alone = retrieve(e, Scoring(items, QueryGallery(), similarity="euclidean"))
    assert torch.equal(torch.cat([share.sim for share in shares]), alone.sim)
    assert torch.equal(torch.cat([share.row for share in shares]) + 30, alone.row)
