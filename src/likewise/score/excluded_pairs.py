"""Read pairs of rows that do not count as results of each other, from a .csv file."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

from likewise.core.types import Items, LikewiseError
from likewise.data.tabular import read_csv


def read_pairs(file: str | None, items: Items) -> Int[np.ndarray, "M 2"] | None:
    """Return the pairs of rows in a .csv file with the columns row_a,row_b or path_a,path_b, or row,other as an audit writes."""
    if file is None:
        return None
    sheet = read_csv(file, "exclude")
    pairs = (("row_a", "row_b"), ("path_a", "path_b"), ("row", "other"))
    cells: list[list[Any]] = [[sheet.column.get(name) for name in pair] for pair in pairs]
    rows, paths, audited = (None if None in pair else pair for pair in cells)
    rows = audited if rows is None and paths is None else rows
    if (rows is None) == (paths is None):
        raise LikewiseError(
            f"exclude: {sheet.file} must have the columns row_a,row_b or path_a,path_b, got {', '.join(sheet.column)}; "
            "the duplicates.csv of an audit can be used directly"
        )
    if rows is not None:
        try:
            return np.asarray(rows, dtype=np.int64).T.reshape(-1, 2)
        except ValueError:
            raise LikewiseError(f"exclude: rows in {sheet.file} must be whole numbers, counted from 0") from None
    if items.path is None:
        raise LikewiseError(f"exclude: '{items.name}' has no paths; name pairs by row_a,row_b in {sheet.file}")
    place = {path: row for row, path in enumerate(items.path)}
    assert paths is not None
    unknown = [path for path in (*paths[0], *paths[1]) if path not in place]
    if unknown:
        raise LikewiseError(
            f"exclude: {len(unknown)} paths of {sheet.file} are not in '{items.name}' (first: {unknown[0]}); write them as "
            "in the data"
        )
    return np.asarray([[place[path] for path in side] for side in paths], dtype=np.int64).T.reshape(-1, 2)
