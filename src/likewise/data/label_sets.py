"""Samples with several labels: distinct sets of labels are classes. They are read from the column `labels` of a table."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from likewise.core.types import Items, LikewiseError
from likewise.data.schema import class_numbers, in_order, label_words, text
from likewise.data.tabular import Sheet

LABEL_SEPARATOR = "|"
"""Between the labels of a sample in the column labels, and in the name of their class."""

PRINTED_LIST = re.compile(r"""[\[({].*['",].*[\])}]""")
"""A list as Python and pandas print it into a cell of text: "['red', 'blue']"."""


def separator_error(owner: str, label: str, where: str) -> str:
    """Return the error of a label in a list that holds the separator of labels."""
    return (
        f"{owner}: '{LABEL_SEPARATOR}' separates labels, so it cannot be in one, got {label!r} in {where}; list the labels "
        "separately, or write another character"
    )


def set_names(sets: Iterable[Sequence[int]], label_name: Sequence[str]) -> tuple[str, ...]:
    """Return the class name of every set: the names of its labels, joined."""
    return tuple(LABEL_SEPARATOR.join(label_name[label] for label in one) for one in sets)


def label_table(label_sets: Sequence[Sequence[int]], labels: int) -> Bool[np.ndarray, "S L"]:
    """Return whether each set has each label."""
    table = np.zeros((len(label_sets), labels), bool)
    for number, one in enumerate(label_sets):
        table[number, list(one)] = True
    return table


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
    return dataclasses.replace(items, y=y, label_sets=tuple(number), class_name=set_names(number, items.label_name))


def split_labels(name: str) -> tuple[str, ...]:
    """Return the labels of a joined name, each once, in their order; the name itself if nothing else is left of it."""
    found = tuple(dict.fromkeys(word for part in name.split(LABEL_SEPARATOR) if (word := part.strip())))
    return found or (name,)


def join_labels(labels: Sequence[str]) -> str:
    """Return the name of a class that is a set of labels."""
    return LABEL_SEPARATOR.join(labels)


def with_label_sets(items: Items) -> Items:
    """Return items whose classes are sets of labels, read from the joined class names."""
    sets = [split_labels(name) for name in items.class_name]
    names = sorted({label for labels in sets for label in labels})
    number = {name: place for place, name in enumerate(names)}
    numbered = tuple(tuple(sorted(number[label] for label in labels)) for labels in sets)
    return dataclasses.replace(items, label_name=tuple(names), label_sets=numbered)


def labels_by_class(items: Items) -> tuple[tuple[str, ...], ...] | None:
    """Return the names of the labels of every class; None if samples have one label each."""
    names = items.label_name
    if items.label_sets is None or names is None:
        return None
    return tuple(tuple(names[label] for label in labels) for labels in items.label_sets)


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
    """Return the table with `label` in place of `labels` if every row has one label. Raise if the table has both columns.

    A file of embeddings may have both: `class_name` then has the same cells as `labels`, and `label` the numbers of the classes.
    """
    if {"label", "labels", "class_name"} <= sheet.column.keys() and sheet.column["labels"] == sheet.column[
        "class_name"
    ]:
        kept = {name: cells for name, cells in sheet.column.items() if name not in ("label", "class_name")}
        sheet = dataclasses.replace(sheet, column=kept)
    if "label" in sheet.column and "labels" in sheet.column:
        raise LikewiseError(
            f"{sheet.owner}: {sheet.file} must have the column label (one label per row) or labels (several), got both; drop "
            f'one, or choose: "{sheet.file}?label=label" or "{sheet.file}?labels=labels"'
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
    whole = [cell_text(sheet, name, row, cell) for row, cell in enumerate(cells)]
    words = label_words(dataclasses.replace(sheet, column={name: whole}), name)
    found = [tuple(dict.fromkeys(filter(None, map(str.strip, word.split(LABEL_SEPARATOR))))) for word in words]
    empty = next((row for row, one in enumerate(found) if not one), None)
    if empty is not None:
        raise sheet.wrong(empty, f"every row must have a label in {name}", words[empty], "fill it or drop the row")
    return found


def cell_text(sheet: Sheet, name: str, row: int, cell: Any) -> Any:
    """Return a cell of labels with those of a list joined by the separator; raises for a label that cannot be joined."""
    if not isinstance(cell, list | tuple):
        if isinstance(cell, str) and PRINTED_LIST.fullmatch(cell.strip()):
            raise LikewiseError(
                f"{sheet.owner}: {name} must hold labels with '{LABEL_SEPARATOR}' between them, got the printed list {cell!r} in "
                f"{sheet.at(row)}; write red{LABEL_SEPARATOR}blue in place of ['red', 'blue'], or save lists as .parquet"
            )
        return cell
    words = [text(label) for label in cell]
    for word in words:
        if LABEL_SEPARATOR in word:
            raise LikewiseError(separator_error(sheet.owner, word, sheet.at(row)))
        if not word:
            raise LikewiseError(
                f"{sheet.owner}: a label must not be empty, got {cell!r} in {name} in {sheet.at(row)}; leave it out"
            )
    return LABEL_SEPARATOR.join(words)
