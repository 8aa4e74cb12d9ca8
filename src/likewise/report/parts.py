"""The part of a file of embeddings that a report shows."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from likewise.config import Report
from likewise.data.features import read_embeddings
from likewise.runs.embeddings import EMBEDDINGS, origin
from likewise.runs.folder import find_target
from likewise.types import Items


def one_part(items: Items, row: Int[np.ndarray, "N"]) -> tuple[Items, Int[np.ndarray, "n"], str]:
    """The part that is to be shown: test where there is one, as evaluation has it; else all there is."""
    parts = set() if items.split is None else set(np.unique(items.split).tolist()) - {""}
    if len(parts) < 2 or "test" not in parts:
        return dataclasses.replace(items, split=None), row, parts.pop() if len(parts) == 1 else "all"
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
    """Return the embeddings of a target that are shown, and how they are compared."""
    path = find_target(target, "report")
    file = path / EMBEDDINGS if path.is_dir() else path
    items = read_embeddings(str(file), root=config.root)
    x = one_part(items, np.arange(len(items)))[0].x
    assert x is not None
    return x, origin(file).get("similarity", "cosine")
