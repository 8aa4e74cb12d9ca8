"""Scoring: what the protocol says is what is ranked."""

import numpy as np
import torch

from likewise.protocols import QueryGallery
from likewise.scoring import retrieve
from likewise.types import Embedded, Items


def test_positions_are_those_of_the_embeddings_not_of_the_gallery():
    x = np.eye(4, dtype=np.float32)[[0, 1, 0, 1, 2, 2]]
    y = np.array([0, 1, 0, 1, 2, 2])
    query, gallery = np.array([1, 1, 0, 0, 1, 0], bool), np.array([0, 0, 1, 1, 1, 1], bool)
    items = Items("toy", y, tuple("abc"), x=x, query=query, gallery=gallery)
    e = Embedded(torch.as_tensor(x), torch.as_tensor(y), torch.arange(6))
    found = retrieve(e, items, QueryGallery())
    assert found.query.tolist() == [0, 1, 4] and found.row[:, 0].tolist() == [2, 3, 5]
