"""The split of an embedding file that a report shows."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from likewise.config import Report
from likewise.data.features import read_embeddings
from likewise.runs.embeddings import EMBEDDINGS_FILE, origin
from likewise.runs.folder import find_target
from likewise.types import Items


def shown_split(items: Items, row: Int[np.ndarray, "N"]) -> tuple[Items, Int[np.ndarray, "n"], str]:
    """Return the samples of the split to show, their rows, and the name of the split.

    This is the test split if the file has several splits with a test split, otherwise all samples.
    """
    splits = set() if items.split is None else set(np.unique(items.split).tolist()) - {""}
    if len(splits) < 2 or "test" not in splits:
        return dataclasses.replace(items, split=None), row, splits.pop() if len(splits) == 1 else "all"
    some = np.flatnonzero(items.split == "test")
    columns = {
        name: None if (own := getattr(items, name)) is None else own[some]
        for name in ("x", "query", "gallery", "gallery_name", "group", "box")
    }
    there, columns["y"] = np.unique(items.y[some], return_inverse=True)
    columns["class_name"] = tuple(items.class_name[c] for c in there)
    columns["path"] = None if items.path is None else tuple(items.path[r] for r in some)
    return dataclasses.replace(items, split=None, weight=None, y_clean=None, **columns), row[some], "test"


def vectors_of(target: str, config: Report) -> tuple[Float[np.ndarray, "N D"], str]:
    """Return the embeddings of a target that are shown, and their similarity ("cosine" or "euclidean")."""
    path = find_target(target, "report")
    file = path / EMBEDDINGS_FILE if path.is_dir() else path
    items = read_embeddings(str(file), root=config.root)
    x = shown_split(items, np.arange(len(items)))[0].x
    assert x is not None
    return x, origin(file).get("similarity", "cosine")
