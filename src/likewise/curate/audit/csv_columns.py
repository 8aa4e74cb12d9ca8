"""Columns of a CSV file of an audit by pyarrow, for files of millions of lines.

pyarrow reads what likewise itself writes. Where a file has anything else, such as a short line or a number that pyarrow does not
know, `read_columns` returns None, and the caller reads line by line, which accepts it or names the line that is wrong.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from likewise.core.files import open_csv
from likewise.curate.audit.samples import Paths, Texts, optional

MIN_COLUMNS_BYTES = 2**20
"""Size of a file from which pyarrow is imported to read it: the import takes as long as reading a smaller file by lines."""

Kind = type | UnionType
"""Type of a cell: str, bool, int, float, or one of the last two or None."""


def min_columns_bytes() -> int:
    """Return the size from which a file is read by columns: any, if another module has imported pyarrow."""
    return 0 if "pyarrow" in sys.modules else MIN_COLUMNS_BYTES


def read_columns(file: Path, kinds: Mapping[str, Kind], plain: str = "") -> dict[str, Any] | None:
    """Return the columns of these kinds that a file has; None: the file must be read line by line.

    Numbers are arrays, an empty cell is NaN (or -1 for `int | None`), and text is `Texts`.

    Args:
        plain: name of a column of text with mostly different cells, which is read as `Paths`.
    """
    try:
        if os.path.getsize(file) < min_columns_bytes():
            return None
        with open_csv(file) as text:
            head = next(csv.reader(text), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    present = [name for name in kinds if name in head]
    if len(set(head)) != len(head) or not present:
        return None
    texts = pa.dictionary(pa.int32(), pa.binary())
    of_kind = {str: texts, bool: texts, int: pa.int64(), int | None: pa.int64()}
    types = {name: pa.large_binary() if name == plain else of_kind.get(kinds[name], pa.float64()) for name in present}
    try:
        found = arrow_csv.read_csv(
            file, parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            read_options=arrow_csv.ReadOptions(block_size=2**24),  # a line must fit into a block
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, include_columns=present, null_values=[""], strings_can_be_null=False
            ),
        )  # fmt: skip
        columns = {name: found[name].unify_dictionaries().combine_chunks() for name in present}
    except (pa.ArrowException, OSError, ValueError):
        return None
    found = {name: as_values(columns[name], kinds[name]) for name in present}
    return None if any(column is None for column in found.values()) else found


def as_values(column, kind: Kind) -> np.ndarray | Texts | Paths | None:
    """Return a column of pyarrow as an array, or as text; None: a cell is empty or not finite where a number must be."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):  # empty, in some versions
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_large_binary(column.type):
        _, begin, text = column.buffers()
        begin = np.frombuffer(begin, np.int64)[column.offset : column.offset + len(column) + 1]
        return Paths(memoryview(text or b""), begin)
    if kind in (str, bool):
        names = [name.decode("utf-8", "surrogateescape") for name in column.dictionary.to_pylist()]
        code = numbers(column.indices, np.dtype(np.int32))
        if kind is str:
            return Texts(names, code)
        return np.array([name.lower() in ("1", "true") for name in names], bool)[code]
    if column.null_count and kind in (int, float):
        return None
    if kind in (int, int | None):
        return numbers(column, np.dtype(np.int64), -1)
    values = numbers(column, np.dtype(np.float64), np.nan)
    return values if np.isfinite(values).sum() == len(values) - column.null_count else None


def numbers(column, dtype: np.dtype, empty: float = 0) -> np.ndarray:
    """Return a column of numbers as an array; pyarrow's own conversion imports pandas, which takes longer than reading.

    Args:
        empty: value of empty cells.
    """
    valid, data = column.buffers()
    values = np.frombuffer(data or b"", dtype)[column.offset : column.offset + len(column)]
    if not column.null_count:
        return values
    known = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[
        column.offset : column.offset + len(column)
    ]
    return np.where(known, values, dtype.type(empty))


def as_cells(values: np.ndarray | Texts, kind: Kind) -> list:
    """Return a column of `read_columns` as Python values."""
    if isinstance(values, Texts):
        return values.cells()
    if kind == float | None:
        return optional(values)
    if kind == int | None:
        return [None if value < 0 else value for value in values.tolist()]
    return values.tolist()
