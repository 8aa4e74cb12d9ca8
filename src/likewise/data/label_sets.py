"""Samples with several labels: the column `labels` of a table, and the numbering of distinct sets of labels as classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from likewise.data.schema import class_numbers, in_order, label_words, text
from likewise.data.tabular import Sheet
from likewise.errors import LikewiseError
from likewise.types import Items

LABEL_SEPARATOR = "|"
"""Between the labels of a sample in the column labels, and in the name of their class."""

LabelSet = tuple[int, ...]
"""Label numbers of a class, ascending."""


def label_fields(sheet: Sheet) -> dict[str, Any]:
    """Return y, class_name, y_clean, label_name and label_sets of `Items`, from the column `label` or `labels`.

    A table whose `labels` hold one label in every row is read as if its column were `label`.
    """
    sheet = single_labels(sheet)
    if "labels" not in sheet.column:
        y, class_name, y_clean = class_numbers(sheet)
        return {"y": y, "class_name": class_name, "y_clean": y_clean}
    if "class_name" in sheet.column:
        raise LikewiseError(
            f"{sheet.owner}: {sheet.file} has several labels per row, so the column class_name cannot name them; write the names "
            "themselves into labels, and drop class_name"
        )
    given = {name: label_cells(sheet, name) for name in ("labels", "labels_clean") if name in sheet.column}
    names = in_order({label for sets in given.values() for one in sets for label in one})
    number = {name: place for place, name in enumerate(names)}
    sets = {name: [tuple(sorted(number[label] for label in one)) for one in cells] for name, cells in given.items()}
    distinct = sorted(set().union(*sets.values()))
    place = {one: at for at, one in enumerate(distinct)}
    y = {name: np.array([place[one] for one in cells], np.int64) for name, cells in sets.items()}
    return {
        "y": y["labels"],
        "class_name": set_names(distinct, names),
        "y_clean": y.get("labels_clean"),
        "label_name": tuple(names),
        "label_sets": tuple(distinct),
    }


def single_labels(sheet: Sheet) -> Sheet:
    """Return the table with `label` in place of `labels` if every row has one label. Raise if the table has both columns."""
    if "label" in sheet.column and "labels" in sheet.column:
        raise LikewiseError(
            f"{sheet.owner}: {sheet.file} must have the column label (one label per row) or labels (several), got both; drop one, "
            f'or choose: "{sheet.file}?label=label" or "{sheet.file}?labels=labels"'
        )
    given, other = ("labels", "label") if "labels" in sheet.column else ("label", "labels")
    if f"{other}_clean" in sheet.column:
        raise LikewiseError(
            f"{sheet.owner}: the true labels of the column {given} must be in the column {given}_clean, got {other}_clean in "
            f"{sheet.file}; rename it"
        )
    columns = [name for name in ("labels", "labels_clean") if name in sheet.column]
    several = {name: label_cells(sheet, name) for name in columns}
    if not several or any(len(one) > 1 for cells in several.values() for one in cells):
        return sheet
    single = {name.replace("labels", "label"): [one[0] for one in cells] for name, cells in several.items()}
    return dataclasses.replace(sheet, column=single | {k: c for k, c in sheet.column.items() if k not in several})


def label_cells(sheet: Sheet, name: str) -> list[tuple[str, ...]]:
    """Return the distinct labels of every row, in the order of its cell: text with "|", a list, or one label."""
    cells = sheet.need(name)
    is_list = [isinstance(cell, list | tuple) for cell in cells]
    whole = [LABEL_SEPARATOR.join(map(text, cell)) if many else cell for cell, many in zip(cells, is_list)]
    words = label_words(dataclasses.replace(sheet, column={name: whole}), name)
    found = [tuple(dict.fromkeys(filter(None, map(str.strip, word.split(LABEL_SEPARATOR))))) for word in words]
    empty = next((row for row, one in enumerate(found) if not one), None)
    if empty is not None:
        raise LikewiseError(
            f"{sheet.owner}: every row must have a label in {name}, got {words[empty]!r} in {sheet.at(empty)}; "
            "fill it or drop the row"
        )
    return found


def set_names(sets: Iterable[Sequence[int]], label_name: Sequence[str]) -> tuple[str, ...]:
    """Return the class name of every set: the names of its labels, joined."""
    return tuple(LABEL_SEPARATOR.join(label_name[label] for label in one) for one in sets)


def kept_sets(items: Items, classes: Iterable[int]) -> dict[str, Any]:
    """Return label_name and label_sets for some of the classes, in this order; labels are renumbered without gaps.

    If every class has one label, the data has single labels, and both are None.
    """
    if items.label_sets is None or items.label_name is None:
        return {"label_name": None, "label_sets": None}
    sets = [items.label_sets[c] for c in classes]
    if all(len(one) == 1 for one in sets):
        return {"label_name": None, "label_sets": None}
    labels = sorted({label for one in sets for label in one})
    number = {label: place for place, label in enumerate(labels)}
    return {
        "label_name": tuple(items.label_name[label] for label in labels),
        "label_sets": tuple(tuple(number[label] for label in one) for one in sets),
    }


def sample_labels(items: Items, y: Int[np.ndarray, "n"]) -> tuple[Int[np.ndarray, "P"], Int[np.ndarray, "P"]]:
    """Return all pairs (sample, label) of samples of these classes, by sample: position in `y`, and number of the label.

    If the data has single labels, the labels are the classes.
    """
    if items.label_sets is None:
        return np.arange(len(y)), np.asarray(y, np.int64)
    size = np.array([len(one) for one in items.label_sets])
    flat = np.concatenate([np.asarray(one, np.int64) for one in items.label_sets])
    start = (np.cumsum(size) - size)[y]
    sample = np.repeat(np.arange(len(y)), size[y])
    first = np.cumsum(size[y]) - size[y]
    return sample, flat[start[sample] + np.arange(len(sample)) - first[sample]]


def with_labels(
    items: Items, rows: Int[np.ndarray, "n"], sample: Int[np.ndarray, "P"], label: Int[np.ndarray, "P"]
) -> Items:
    """Return the data with other labels in these rows. Sets that did not exist become classes behind the others.

    Args:
        sample: position in `rows` of every pair (sample, label); every sample has at least one.
        label: number of the label of every pair.
    """
    assert items.label_sets is not None and items.label_name is not None
    order = np.lexsort((label, sample))
    edges = np.cumsum(np.bincount(sample, minlength=len(rows)))[:-1]
    sets = [tuple(one.tolist()) for one in np.split(label[order], edges)]
    number = {one: place for place, one in enumerate(items.label_sets)}
    y = items.y.copy()
    y[rows] = [number.setdefault(one, len(number)) for one in sets]
    return dataclasses.replace(
        items, y=y, label_sets=tuple(number), class_name=set_names(number, items.label_name)
    )
