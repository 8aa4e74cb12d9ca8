"""Labels and relevance given as arrays: one label per row, several labels per row, or a matrix of values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.contracts import Relevance
from likewise.core.types import Items, LikewiseError
from likewise.data.features import as_array, check_x, from_arrays
from likewise.data.label_sets import LABEL_SEPARATOR, separator_error, set_names
from likewise.data.relevance import GivenValues
from likewise.data.schema import in_order, text
from likewise.score.relevance import RelevanceOfRows, relevance_of, with_facts


def items_of_arrays(z: Any, y: Any, name: str = "the arrays") -> Items:
    """Return vectors (N, F) in memory as items. Rows with exactly one label each are plain single-label data.

    Args:
        y: N labels; or several for each row: N lists of labels, or a matrix (N, L) of 0 and 1.
    """
    sets = label_lists(y)
    if sets is None:
        return from_arrays(z, y, name)
    x = check_x(as_array(z), name)
    empty = [row for row, labels in enumerate(sets) if not labels]
    if len(sets) != len(x) or empty:
        what = f"row {empty[0]} has none" if empty else f"got {len(x)} vectors and {len(sets)} sets of labels"
        raise LikewiseError(
            f"evaluate: every vector must have at least one label, but {what}; add labels, or drop the row"
        )
    if all(len(labels) == 1 for labels in sets):
        return from_arrays(x, [str(label) for (label,) in sets], name)
    names = tuple(in_order({label for labels in sets for label in labels}))
    number = {label: place for place, label in enumerate(names)}
    numbers = [tuple(sorted(number[label] for label in labels)) for labels in sets]
    used = sorted(set(numbers))
    place = {one: c for c, one in enumerate(used)}
    y = np.array([place[one] for one in numbers])
    return Items(name, y, set_names(used, names), x=x, label_name=names, label_sets=tuple(used))


def label_lists(y: Any) -> list[set[str]] | None:
    """Return the set of labels of every row, as text; None if there is one label per row."""
    if (rows := listed_rows(y)) is not None:
        return [labels_of(row, number) for number, row in enumerate(rows)]
    given = as_array(y)
    if given.ndim != 2:
        return None
    if not np.isin(given, (0, 1)).all():
        raise LikewiseError(
            f"evaluate: a matrix of labels must hold 0 and 1, one column per label, got {given.min()} to {given.max()}; pass one "
            "label per row, or a list of labels for each row"
        )
    return [set(map(str, np.flatnonzero(row).tolist())) for row in given]


def listed_rows(y: Any) -> list | None:
    """Return the list of labels of every row: of lists, of a pandas column of lists, or of a matrix of words. None: no lists."""
    rows = list(y) if isinstance(y, list | tuple) else None
    if (
        rows is None
        and (given := as_array(y)).dtype.kind in "OUS"
        and not (given.ndim == 2 and np.isin(given, (0, 1)).all())
    ):
        rows = given.tolist()
    lists = [isinstance(row, list | tuple | set | frozenset | np.ndarray) for row in rows or ()]
    if rows is None or not any(lists):
        return None
    if not all(lists):
        raise LikewiseError(
            f"evaluate: every row must have a list of labels, or every row one label, but row {lists.index(False)} has one label "
            f"and row {lists.index(True)} a list; make each a list"
        )
    same = len({len(row) for row in rows}) == 1
    if same and all(isinstance(row, np.ndarray) and row.dtype.kind in "biuf" for row in rows):
        return None  # the rows of a matrix
    if same and len(rows[0]) > 1 and all(label in (0, 1) for row in rows for label in row):
        raise LikewiseError(
            "evaluate: lists of 0 and 1 of one length may be labels or a matrix; pass the matrix as an array: np.array(y)"
        )
    return rows


def labels_of(row: Iterable, number: int) -> set[str]:
    """Return the labels of a row as text; raises for a label that is empty or holds the separator of labels."""
    words = {text(label.item() if isinstance(label, np.generic) else label) for label in row}
    bad = next((word for word in words if not word or LABEL_SEPARATOR in word), None)
    if bad is None:
        return words
    if not bad:
        raise LikewiseError(
            f"evaluate: a label must not be empty, but row {number} has None, NaN or an empty text among its labels; leave it out"
        )
    raise LikewiseError(separator_error("evaluate", bad, f"row {number}"))


def relevance_of_rows(
    given: Any, spec: str | None, items: Items, rows: Int[np.ndarray, "n"], allow_imports: bool
) -> RelevanceOfRows | None:
    """Return the relevance of some rows: `given`, or that of the spec; see `relevance_of`.

    Args:
        given: a `Relevance`, or a matrix (n, n) of values for the rows, NaN where they are not known; None: the spec counts.
    """
    if given is None:
        return relevance_of(items, rows, spec, allow_imports=allow_imports)
    if not isinstance(given, Relevance):
        numbers = as_array(given)
        if numbers.dtype.kind not in "biuf":
            raise LikewiseError(
                f"evaluate: a relevance must be a matrix of numbers, got the type {numbers.dtype}; convert it with .astype(float)"
            )
        values = torch.as_tensor(numbers)
        if values.shape != (len(rows), len(rows)):
            raise LikewiseError(
                f"evaluate: a relevance must be a matrix with a row and a column for each of the {len(rows)} embeddings, got "
                f"shape {tuple(values.shape)}"
            )
        given = GivenValues(values.float())
        given.by = "sample"
    elif isinstance(given, GivenValues):
        given = by_row_or_class(given, items, rows)
    return with_facts(given, given.threshold, items, rows, f"{type(given).__name__}(...)")


def by_row_or_class(given: GivenValues, items: Items, rows: Int[np.ndarray, "n"]) -> GivenValues:
    """Return ready values with ids that are rows, if there is a value for each, otherwise classes. Raises if none fits."""
    fits = {"row": given.ids == len(rows), "class": given.ids == items.classes}
    if given.by == "sample" or not fits["row"]:
        if given.by == "class" and not fits["class"]:
            raise LikewiseError(
                f"evaluate: GivenValues must have a row and a column for each of the {len(rows)} embeddings, or for each of the "
                f"{items.classes} classes, got {given.ids}; make it from the evaluated data"
            )
        return given
    if fits["class"] and not np.array_equal(items.y[rows], np.arange(len(rows))):
        raise LikewiseError(
            f"evaluate: GivenValues may be by row or by class, because there are {len(rows)} of both; pass the matrix itself, "
            "which is by row, or order the rows by class"
        )
    by_row = GivenValues(given.values, given.threshold)
    by_row.by = "sample"
    return by_row
