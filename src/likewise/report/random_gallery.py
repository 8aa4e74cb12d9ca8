"""A gallery figure of random queries with their nearest neighbours among the embeddings of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from likewise.data.features import read_embeddings
from likewise.data.images import image_of
from likewise.io.files import atomic_write
from likewise.render.gallery import Tile, draw_gallery
from likewise.retrieval.ranking import nearest


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
            Tile(image_of(items, a), items.class_name[items.y[a]], f"{s:.3f}", bool(items.y[a] == items.y[query]))
            for a, s in zip(neighbours, sims, strict=True)
        ]
        page.append((Tile(image_of(items, query), items.class_name[items.y[query]], "query"), tiles))
    note = f"{queries} random queries and their {k} nearest neighbours; green: same class, red: another class"
    with atomic_write(file) as aside:
        draw_gallery(page, title, note).save(aside, format="PNG")
