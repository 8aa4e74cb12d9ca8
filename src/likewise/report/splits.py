"""The split of an embedding file that a report shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from likewise.core.settings import Report
from likewise.core.types import Items
from likewise.data.features import read_embeddings
from likewise.data.images import drop
from likewise.runs.embeddings import ALL_EMBEDDINGS_FILE, EMBEDDINGS_FILE, origin
from likewise.runs.folder import find_target


def shown_split(items: Items, row: Int[np.ndarray, "N"]) -> tuple[Items, Int[np.ndarray, "n"], str]:
    """Return the samples of the split to show, their rows, and the name of the split.

    This is the test split if the file has several splits with a test split, otherwise all samples; in both cases without junk.
    """
    splits = set() if items.split is None else set(np.unique(items.split).tolist()) - {""}
    tests = len(splits) > 1 and "test" in splits
    name = "test" if tests else next(iter(splits)) if len(splits) == 1 else "all"
    shown = items.split == "test" if tests else np.ones(len(items), bool)
    shown = shown if items.junk is None else shown & ~items.junk
    items = dataclasses.replace(items, split=None)
    if not shown.all():
        items = drop(dataclasses.replace(items, weight=None, y_clean=None), np.flatnonzero(~shown).tolist())
    return items, row[shown], name


def embeddings_of(run: Path) -> Path:
    """Return the file with the embeddings of a run's test split; for a run without one, those of all images if they exist."""
    file, everything = run / EMBEDDINGS_FILE, run / ALL_EMBEDDINGS_FILE
    return everything if everything.exists() and not file.exists() else file


def vectors_of(target: str, config: Report) -> tuple[Float[np.ndarray, "N D"], str]:
    """Return the embeddings of a target that are shown, and their similarity ("cosine" or "euclidean")."""
    path = find_target(target, "report")
    file = embeddings_of(path) if path.is_dir() else path
    items = read_embeddings(str(file), root=config.root)
    x = shown_split(items, np.arange(len(items)))[0].x
    assert x is not None
    return x, origin(file).get("similarity", "cosine")
