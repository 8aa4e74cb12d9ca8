"""A gallery figure of random queries with their nearest neighbours among the embeddings of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from likewise.core.files import atomic_write
from likewise.core.render.gallery import Tile, draw_gallery
from likewise.core.retrieval.ranking import nearest
from likewise.core.types import Items
from likewise.data.features import read_embeddings
from likewise.data.images import image_of


def draw_random_gallery(
    embeddings: Path, file: Path, title: str, *, seed: int = 0, queries: int = 8, k: int = 5
) -> None:
    """Write a figure of random queries with their `k` nearest neighbours.

    Args:
        embeddings: embedding file with the paths of the images, such as embeddings.npz of a run.
        file: the figure to write (.png).
    """
    items = read_embeddings(str(embeddings))
    chosen = np.sort(np.random.default_rng(seed).permutation(len(items))[:queries])
    z = torch.as_tensor(items.x)
    row, sim = nearest(z[chosen], z, k, own=torch.as_tensor(chosen))
    page = []
    for query, neighbours, sims in zip(chosen.tolist(), row.tolist(), sim.tolist(), strict=True):
        tiles = [
            Tile(image_of(items, a), items.class_name[items.y[a]], f"{s:.3f}", is_right(items, query, a))
            for a, s in zip(neighbours, sims, strict=True)
        ]
        page.append((Tile(image_of(items, query), items.class_name[items.y[query]], "query"), tiles))
    meaning = "same class, red: another class" if items.label_sets is None else "a label in common, red: none"
    note = f"{queries} random queries and their {k} nearest neighbours; green: {meaning}"
    with atomic_write(file) as aside:
        draw_gallery(page, title, note).save(aside, format="PNG")


def is_right(items: Items, query: int, row: int) -> bool:
    """Return whether a row has the class of the query, or one of its labels if samples have several."""
    a, b = int(items.y[query]), int(items.y[row])
    return a == b if items.label_sets is None else not set(items.label_sets[a]).isdisjoint(items.label_sets[b])
