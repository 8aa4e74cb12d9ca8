"""The table of a run's data with corrected training labels, and the protocol that goes by its `split` column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from likewise.contracts import Protocol
from likewise.data.images import drop
from likewise.data.table import places, write_table
from likewise.protocols import ClassFolds, QueryGallery, SeenClasses, UnseenClasses
from likewise.protocols.splits import split_by
from likewise.types import Items, LikewiseError


def must_be_classes(items: Items, rows: np.ndarray, labels: dict[int, int | None]) -> None:
    known = set(items.y[rows].tolist())
    odd = next((row for row, label in labels.items() if label is not None and label not in known), None)
    if odd is not None:
        raise LikewiseError(
            f"retrain: labels must be among the {len(known)} classes that train, got {labels[odd]} for row {odd}; "
            "suggest one of these, or None to leave the sample out"
        )


def write_corrected(items: Items, protocol: Protocol, labels: dict[int, int | None], out: Path) -> Path:
    """The table to train with. What was train, val and test stays that, whatever the labels say now."""
    y = items.y.copy()
    for row, label in labels.items():
        y[row] = y[row] if label is None else label
    table = out / ("corrected.csv" if items.x is None else "corrected.parquet")
    items = replace(items, y=y, split=split_by(protocol, items), path=places(items, table))
    write_table(drop(items, [row for row, label in labels.items() if label is None]), str(table))
    return table


def by_its_split(protocol: Protocol) -> Protocol:
    """The protocol that goes by the table's `split` and else does the same."""
    if isinstance(protocol, SeenClasses):
        return SeenClasses(gallery=protocol.gallery, own_split=True)
    if isinstance(protocol, QueryGallery):
        return QueryGallery(gallery=protocol.gallery)
    if isinstance(protocol, UnseenClasses | ClassFolds):
        return UnseenClasses()
    raise LikewiseError(
        f"retrain: a protocol that can go by a `split` column is needed, got {type(protocol).__name__}; "
        "correct the data and train it yourself"
    )
