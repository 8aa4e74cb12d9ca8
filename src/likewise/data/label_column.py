"""Parse the column `labels` of a table: several labels per row, and their distinct sets as classes."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from likewise.core.errors import LikewiseError
from likewise.data.label_sets import LABEL_SEPARATOR, separator_error, set_names
from likewise.data.schema import class_numbers, in_order, label_words, text
from likewise.data.tabular import Sheet

PRINTED_LIST = re.compile(r"""[\[({].*['",].*[\])}]""")
"""A list as Python and pandas print it into a cell of text: "['red', 'blue']"."""


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
        raise LikewiseError(
            f"{sheet.owner}: every row must have a label in {name}, got {words[empty]!r} in {sheet.at(empty)}; "
            "fill it or drop the row"
        )
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
