"""The table of a run's data with corrected training labels, and the protocol that reads its `split` column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from likewise.core.contracts import Protocol
from likewise.core.types import Items, LikewiseError
from likewise.data.images import drop
from likewise.data.protocols import ClassFolds, QueryGallery, SeenClasses, StratifiedLabels, UnseenClasses, UnseenLabels
from likewise.data.protocols.splits import split_by
from likewise.data.table import places, write_table


def check_training_classes(items: Items, rows: np.ndarray, labels: dict[int, int | None]) -> None:
    """Raise unless every new label is a class of the training split."""
    known = set(items.y[rows].tolist())
    unknown = next((row for row, label in labels.items() if label is not None and label not in known), None)
    if unknown is not None:
        raise LikewiseError(
            f"retrain: labels must be among the {len(known)} classes of the training split, got {labels[unknown]} for "
            f"row {unknown}; "
            "suggest one of these classes, or None to drop the sample"
        )


def write_corrected(items: Items, protocol: Protocol, labels: dict[int, int | None], out: Path) -> Path:
    """Write the data with new labels as a table, and return its file.

    Every row keeps its split. Rows whose label is None are left out.
    """
    y = items.y.copy()
    for row, label in labels.items():
        y[row] = y[row] if label is None else label
    table = out / ("retrained.csv" if items.x is None else "retrained.parquet")  # corrected.csv is that of a review
    items = replace(items, y=y, split=split_by(protocol, items), path=places(items, table))
    write_table(drop(items, [row for row, label in labels.items() if label is None]), str(table))
    return table


def split_column_protocol(protocol: Protocol) -> Protocol:
    """Return a protocol that takes splits from the `split` column, and is otherwise equal to the given one."""
    if isinstance(protocol, SeenClasses):
        return SeenClasses(gallery=protocol.gallery, own_split=True)
    if isinstance(protocol, QueryGallery):
        return QueryGallery(gallery=protocol.gallery)
    if isinstance(protocol, UnseenClasses | ClassFolds):
        return UnseenClasses()
    if isinstance(protocol, StratifiedLabels | UnseenLabels):
        return type(protocol)()
    raise LikewiseError(
        f"retrain: the protocol must support a `split` column, got {type(protocol).__name__}; "
        "correct the data and train on it yourself"
    )
