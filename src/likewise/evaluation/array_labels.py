"""Labels and relevance given as arrays: one label per row, several labels per row, or a matrix of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from likewise.contracts import Relevance
from likewise.data.features import as_array, check_x, from_arrays
from likewise.data.schema import in_order
from likewise.evaluation.relevance import RelevanceOfRows, relevance_of, with_facts
from likewise.relevance import GivenValues
from likewise.types import Items, LikewiseError


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
    class_name = tuple("|".join(names[label] for label in one) for one in used)
    return Items(
        name, np.array([place[one] for one in numbers]), class_name, x=x, label_name=names, label_sets=tuple(used)
    )


def label_lists(y: Any) -> list[set[str]] | None:
    """Return the set of labels of every row, as text; None if there is one label per row."""
    if isinstance(y, list | tuple) and len(y) and all(isinstance(row, list | tuple | set | frozenset) for row in y):
        if len({len(row) for row in y}) == 1 and len(y[0]) > 1 and {label for row in y for label in row} <= {0, 1}:
            raise LikewiseError(
                "evaluate: lists of 0 and 1 of one length may be labels or a matrix; pass the matrix as an array: np.array(y)"
            )
        return [{str(label) for label in row} for row in y]
    given = as_array(y)
    if given.ndim != 2:
        return None
    if not np.isin(given, (0, 1)).all():
        raise LikewiseError(
            f"evaluate: a matrix of labels must hold 0 and 1, one column per label, got {given.min()} to {given.max()}; pass one "
            "label per row, or a list of labels for each row"
        )
    return [set(map(str, np.flatnonzero(row).tolist())) for row in given]


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
        values = torch.as_tensor(as_array(given))
        if values.shape != (len(rows), len(rows)):
            raise LikewiseError(
                f"evaluate: a relevance must be a matrix with a row and a column for each of the {len(rows)} embeddings, got "
                f"shape {tuple(values.shape)}"
            )
        given = GivenValues(values.float())
        given.by = "sample"
    return with_facts(given, given.threshold, items, rows, f"{type(given).__name__}(...)")
