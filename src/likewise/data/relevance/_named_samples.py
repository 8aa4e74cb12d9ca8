"""Files that name pairs or triplets of samples: their columns, the positions of the names, and pairs as sorted numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import nearest_name
from likewise.core.types import LikewiseError
from likewise.data.schema import text
from likewise.data.tabular import Sheet, read_csv, read_parquet


def read_named(owner: str, file: str) -> Sheet:
    """Return the cells of a .csv or .parquet file."""
    path = Path(file).expanduser()
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise LikewiseError(f"{owner}: file must be a .csv or .parquet table, got '{file}'; save it as one of these")
    if not path.is_file():
        raise LikewiseError(f"{owner}: there is no file '{file}'; check the path")
    return (read_csv if path.suffix.lower() == ".csv" else read_parquet)(str(path), owner)


def positions(
    sheet: Sheet, columns: Sequence[str], sample_names: Sequence[str], other_names: Sequence[str]
) -> tuple[Int[np.ndarray, "n c"], Int[np.ndarray, "n"], str]:
    """Return the positions of the samples that each line names, the lines whose samples all train, and a note about the others.

    Args:
        columns: columns with the names of samples.
        sample_names: names of the training samples; a position counts them from 0.
        other_names: names of the other samples of the data; a line with one of them is ignored.
    """
    place = {name: at for at, name in enumerate(sample_names)}
    others = set(other_names) - place.keys()
    known = place.keys() | others
    cells = [[name_of(cell, known) for cell in sheet.need(column)] for column in columns]
    found = np.array([[place.get(name, -1) for name in column] for column in cells]).T.reshape(len(sheet), len(columns))
    for row in np.flatnonzero((found < 0).any(1)).tolist():
        unknown = next((c[row] for c in cells if c[row] not in place and c[row] not in others), None)
        if unknown is not None:
            raise LikewiseError(
                f"{sheet.owner}: the data has no sample '{unknown}', which {sheet.at(row)} names"
                f"{nearest_name(unknown, [*sample_names, *others])} A sample is named by its path in the data, or by its row "
                "number if the data has no paths"
            )
    if len(place) < len(sample_names):
        check_unique(sheet, cells, sample_names)
    rows = np.flatnonzero((found >= 0).all(1))
    for row in rows.tolist():
        if len(set(found[row].tolist())) < len(columns):
            raise LikewiseError(
                f"{sheet.owner}: {', '.join(columns)} must be different samples, got '{cells[0][row]}' twice or more in "
                f"{sheet.at(row)}; remove the line"
            )
    if not len(rows):
        raise LikewiseError(
            f"{sheet.owner}: no line of {sheet.file} names samples of the training, or of the evaluation, only; check the names "
            "and the splits, or evaluate without this relevance"
        )
    ignored = len(sheet) - len(rows)
    note = f"{sheet.owner}: {ignored:,} of {len(sheet):,} lines of {sheet.file} name samples that do not train; they are ignored"
    return found[rows], rows, note if ignored else ""


def name_of(cell: Any, known: Set[str]) -> str:
    """Return the name in a cell; a row number may be written as a decimal, as pandas does in columns with gaps: 112.0."""
    name = text(cell)
    whole = name.partition(".")[0]
    return whole if name not in known and whole in known and re.fullmatch(r"\d+\.0+", name) else name


def check_unique(sheet: Sheet, cells: list[list[str]], names: Sequence[str]) -> None:
    """Raise if the file names a sample by a name that several samples have, such as the boxes of one image."""
    values, count = np.unique(np.asarray(names), return_counts=True)
    several = set(values[count > 1].tolist())
    for column in cells:
        row = next((row for row, name in enumerate(column) if name in several), None)
        if row is not None:
            raise LikewiseError(
                f"{sheet.owner}: a name must belong to one sample, but '{column[row]}' in {sheet.at(row)} belongs to several; "
                "use data with one row per image"
            )


def pair_keys(pairs: Int[np.ndarray, "n 2"], ids: int) -> Int[np.ndarray, "n"]:
    """Return one number for every pair, the same for both orders of its samples."""
    return pairs.min(1).astype(np.int64) * ids + pairs.max(1)


def related_ids(keys: Int[Tensor, "P"], is_positive: Bool[Tensor, "P"], ids: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples that are relevant to each: those of sample i are `found[start[i] : start[i + 1]]`.

    Args:
        keys: `pair_keys` of the pairs.
        is_positive: the pairs that count.
    """
    key = keys[is_positive].cpu().numpy()
    one, other = np.concatenate([key // ids, key % ids]), np.concatenate([key % ids, key // ids])
    start = np.concatenate([[0], np.cumsum(np.bincount(one, minlength=ids))])
    return start, other[np.lexsort((other, one))]


def look_up(
    keys: Int[Tensor, "P"],
    values: Float[Tensor, "P"],
    a: Int[Tensor, "B"],
    b: Int[Tensor, "R"],
    ids: int,
    unlisted: float,
) -> Float[Tensor, "B R"]:
    """Return the value of every pair of two lists of samples: 1 for a sample with itself, `unlisted` for a pair without a key.

    Args:
        keys: `pair_keys` of the pairs, ascending.
    """
    low, high = torch.minimum(a[:, None], b[None, :]), torch.maximum(a[:, None], b[None, :])
    key = low * ids + high
    place = torch.searchsorted(keys, key).clamp_max_(len(keys) - 1)
    return values[place].masked_fill_(keys[place] != key, unlisted).masked_fill_(low == high, 1.0)
