"""Small indices for tests."""

import numpy as np

from likewise.deploy.index.stored_rows import Rows, pack
from likewise.deploy.index.vector_index import Index


def vectors(count, dim=8, seed=0, similarity="cosine"):
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(count, dim)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True) if similarity == "cosine" else 3 * made


def make_rows(count=40, dim=8, similarity="cosine", first=0, names=("wren", "robin", "tit, blue")):
    label = np.arange(count) % len(names)
    table, text = pack(first + np.arange(count), label, [f"bild {row} ü.png" for row in range(count)])
    return Rows(vectors(count, dim, similarity=similarity), table, text, names, np.ones(count, bool), similarity)


def make_index(*args, **settings):
    return Index(make_rows(*args, **settings))
