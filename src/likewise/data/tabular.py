"""Read CSV and Parquet files as columns of raw cells, with the line number of each row. `schema` parses the cells."""

from __future__ import annotations

import csv
import difflib
import io
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from likewise.core.errors import LikewiseError

UNDECODABLE_BYTES = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as `surrogateescape` reads them."""

FOREIGN_STARTS = (
    (b"\xff\xfe", "UTF-16", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16", "save it as UTF-8"),
    (b"\x1f\x8b", "compressed with gzip", "unpack it"),
    (b"PK\x03\x04", "a zip archive, as spreadsheets write it", "export the table as CSV"),
    (b"PAR1", "a Parquet file", "rename it to .parquet"),
)
"""First bytes of a file -> what it is instead of text, and what to do."""


MIN_CODED_ROWS = 50_000
"""Number of rows from which columns are stored by code: below, a list of cells takes less time."""


@dataclass(frozen=True, eq=False)
class Codes(Sequence):
    """A column by code: `cells[code[i]]` is the cell of row i. A million labels take 8 MB, and every cell is parsed once.

    Every cell occurs in some row. Iterating yields one cell per row, as a list does.
    """

    code: Int[np.ndarray, "N"]
    cells: list

    @classmethod
    def of(cls, code: Int[np.ndarray, "N"], cells: Sequence) -> Codes:
        """Return the column of these codes, with the cells that occur. O(N + cells), without sorting the rows."""
        used = np.bincount(code, minlength=len(cells)) > 0
        place = np.cumsum(used) - 1
        return cls(place[code], [cells[number] for number in np.flatnonzero(used).tolist()])

    def __len__(self) -> int:
        return len(self.code)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self.cells[code] for code in self.code[row].tolist()]
        return self.cells[int(self.code[row])]

    def __iter__(self) -> Iterator:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        """Whether both columns have the same cells in every row."""
        if isinstance(other, Codes) and self.cells == other.cells:
            return np.array_equal(self.code, other.code)
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    def map(self, change: Callable[[Any], Any]) -> Codes:
        """Return the column with every cell changed; two cells may become equal."""
        return Codes(self.code, [change(cell) for cell in self.cells])

    def first_rows(self) -> Int[np.ndarray, "K"]:
        """Return the first row of every cell."""
        first = np.empty(len(self.cells), np.int64)
        first[self.code[::-1]] = np.arange(len(self) - 1, -1, -1)  # the last assignment counts: that of the first row
        return first


def distinct_cells(column: Sequence) -> Iterator[tuple[int, Any]]:
    """Yield (row, cell) in the order of the rows: every row of a list, and the first row of every cell of `Codes`."""
    if not isinstance(column, Codes):
        yield from enumerate(column)
        return
    first = column.first_rows()
    yield from ((int(first[place]), column.cells[place]) for place in np.argsort(first).tolist())


def distinct_pairs(a: Sequence, b: Sequence) -> Iterator[tuple[int, Any, Any]]:
    """Yield (row, cell of a, cell of b) in the order of the rows: of two `Codes`, the first row of every pair of cells."""
    if not (isinstance(a, Codes) and isinstance(b, Codes)):
        yield from ((row, one, other) for row, (one, other) in enumerate(zip(a, b)))
        return
    both, code = np.unique(a.code * len(b.cells) + b.code, return_inverse=True)
    pairs = Codes(code, [(a.cells[pair // len(b.cells)], b.cells[pair % len(b.cells)]) for pair in both.tolist()])
    yield from ((row, *pair) for row, pair in distinct_cells(pairs))


def as_codes(column: np.ndarray) -> Codes | None:
    """Return an array of whole numbers or texts by code; None for other arrays, for few rows, and if most cells differ."""
    if len(column) < MIN_CODED_ROWS or column.ndim != 1 or column.dtype.kind not in "iubU":
        return None
    import pyarrow as pa

    try:
        coded = pa.array(column).dictionary_encode()
    except (pa.ArrowException, UnicodeError):  # names with bytes that are not UTF-8
        return None
    return None if 2 * len(coded.dictionary) > len(column) else from_arrow(coded)


def from_arrow(coded: Any) -> Codes:
    """Return a dictionary-encoded array of pyarrow, without nulls, as a column by code."""
    return Codes(coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary.to_pylist())


@dataclass(frozen=True, eq=False)
class Sheet:
    """Raw cells by column. `line[i]`: position of row i in the file, in `unit`s from 1."""

    owner: str  # name at the start of errors
    file: str  # name of the file, for errors
    column: Mapping[str, Sequence]
    line: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.line)

    def at(self, row: int) -> str:
        """Return the position of a row as text, for errors."""
        return f"{self.file} {self.unit} {self.line[row]}"

    def wrong(self, row: int, rule: str, got: object, advice: str) -> LikewiseError:
        """Return the error of a cell: `rule` names the column and what must hold, `got` is the cell."""
        return LikewiseError(f"{self.owner}: {rule}, got {got!r} in {self.at(row)}; {advice}")

    def need(self, name: str) -> Sequence:
        """Return a required column; raise if it is missing."""
        if name not in self.column:
            has = ", ".join(self.column) or "no columns"
            # Names are case-sensitive, the suggestion is not: 'Label' is the most frequent mistake.
            folded = {column.casefold(): column for column in self.column}
            near = difflib.get_close_matches(name, folded, n=1, cutoff=0.5)
            guess = (
                f"; did you mean {folded[near[0]]!r}? Rename it to {name!r}"
                if near
                else f"; add it, or rename the column that holds it to {name!r}"
            )
            raise LikewiseError(f"{self.owner}: the column {name!r} is missing from {self.file}; it has: {has}{guess}")
        return self.column[name]


def read_sheet(file: str) -> Sheet:
    """Return the raw cells of a .csv or .parquet file."""
    suffix = Path(file).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise LikewiseError(
            f"table: a table is a .csv or .parquet file, got {Path(file).name!r}; save it as one of these"
        )
    return read_csv(file) if suffix == ".csv" else read_parquet(file)


def read_csv(file: str, owner: str = "table") -> Sheet:
    """Return the cells of a CSV file (UTF-8, commas); blank lines are ignored. `owner` is named in errors."""
    name = Path(file).name
    text = read_text(file, owner, "surrogateescape")
    rows, lines, last = [], [], 0
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append(row)
                lines.append(last + 1)
            last = reader.line_num
    except csv.Error as error:
        raise LikewiseError(f"{owner}: {name} line {last + 1} is not CSV ({error}); check its quotes") from None
    if not rows:
        raise LikewiseError(f"{owner}: {name} must hold a header and rows, but it is empty; fill it or remove it")
    check_bytes(rows, lines, name, owner)
    head = [cell.strip() for cell in rows[0]]
    if len(head) == 1 and any(mark in head[0] for mark in ";\t|"):
        raise LikewiseError(
            f"{owner}: the columns of {name} must be separated by commas, got {head[0]!r}; save it again with commas"
        )
    check_head(head, name, owner)
    for row, line in zip(rows[1:], lines[1:], strict=True):
        if len(row) != len(head):
            raise LikewiseError(
                f"{owner}: {name} line {line} must have {len(head)} cells like the header, got {len(row)}; "
                "put a cell that holds a comma in quotes"
            )
    check_rows(len(rows) - 1, name, owner)
    columns = {column: [row[number] for row in rows[1:]] for number, column in enumerate(head) if column}
    return Sheet(owner, name, columns, lines[1:])


def read_coded_csv(file: str, owner: str = "table") -> Sheet | None:
    """Return the cells of a plain CSV file with many rows, with repeated cells by code; None if `read_csv` must read it.

    Plain is UTF-8 without quotes, with one row per line and no blank label. A million rows take a second and 100 MB.
    """
    raw = read_plain_lines(file)
    if raw is None:
        return None
    import pyarrow as pa
    from pyarrow import csv as arrow

    try:
        head = [cell.strip() for cell in raw[: raw.find(b"\n")].decode("utf-8").split(",")]
        table = arrow.read_csv(
            pa.BufferReader(raw),
            arrow.ReadOptions(column_names=[str(number) for number in range(len(head))], skip_rows=1),
            arrow.ParseOptions(quote_char=False, ignore_empty_lines=False),
            arrow.ConvertOptions(
                column_types={str(number): pa.string() for number in range(len(head))}, strings_can_be_null=False
            ),
        )
    except (pa.ArrowException, UnicodeError):
        return None
    if len(set(head)) < len(head) or table.num_rows != raw.count(b"\n") - raw.endswith(b"\n"):
        return None
    columns = {name: coded_cells(table[str(number)]) for number, name in enumerate(head) if name}
    if not any(name in columns for name in ("label", "labels")) or any(
        not str(cell).strip() for name in ("label", "labels") for _, cell in distinct_cells(columns.get(name, ()))
    ):
        return None  # a line of blank cells is no row
    return Sheet(owner, Path(file).name, columns, range(2, table.num_rows + 2))


def read_plain_lines(file: str) -> bytes | None:
    """Return the content of a text file with many lines and neither quotes nor line ends within lines, else None."""
    try:
        if os.path.getsize(file) < 2 * MIN_CODED_ROWS:
            return None
        raw = Path(file).read_bytes()
    except OSError:
        return None
    plain = not any(mark in raw for mark in (b'"', b"\0", b"\xef\xbb\xbf"))
    return raw if plain and raw.count(b"\r") == raw.count(b"\r\n") and raw.count(b"\n") >= MIN_CODED_ROWS else None


def coded_cells(column: Any) -> Sequence[str]:
    """Return a text column of a pyarrow table by code, or as a list if most of its cells differ."""
    whole = column.combine_chunks()
    coded = whole.dictionary_encode()
    return from_arrow(coded) if 2 * len(coded.dictionary) <= len(whole) else whole.to_pylist()


def check_bytes(rows: list[list[str]], lines: list[int], name: str, owner: str) -> None:
    """Raise for a cell that is not UTF-8, unless it is the name of an image file or of one of its folders.

    The file system allows any bytes in a name, and likewise writes them into its tables as they are.
    """
    odd = [
        (line, cell) for row, line in zip(rows, lines, strict=True) for cell in row if UNDECODABLE_BYTES.search(cell)
    ]
    if not odd:
        return
    from likewise.core.image_files import IMAGE_SUFFIXES  # imports Pillow

    images = {cell for _, cell in odd if os.path.splitext(cell)[1].lower() in IMAGE_SUFFIXES}
    named = images | {part for cell in images for part in cell.split("/")}
    for line, cell in odd:
        if cell not in named:
            raise LikewiseError(not_utf8(name, owner, line, ord(UNDECODABLE_BYTES.findall(cell)[0]) - 0xDC00))


def not_utf8(name: str, owner: str, line: int, byte: int) -> str:
    """Return the error about a byte that is not UTF-8."""
    return f"{owner}: {name} must be UTF-8, but line {line} holds the byte 0x{byte:02x}; save it as UTF-8"


def read_text(file: str, owner: str, errors: str = "strict") -> str:
    """Return the content of a UTF-8 file; `errors`: as in `bytes.decode`."""
    name = Path(file).name
    try:
        raw = Path(file).read_bytes()
    except OSError as error:
        raise LikewiseError(f"{owner}: {file} cannot be read ({error.strerror}); check the path") from None
    for start, kind, advice in FOREIGN_STARTS:
        if raw.startswith(start):
            raise LikewiseError(f"{owner}: {name} must be a text file in UTF-8, but it is {kind}; {advice}")
    if (place := raw.find(b"\0")) >= 0:
        line = raw[:place].count(b"\n") + 1
        raise LikewiseError(
            f"{owner}: {name} must be a text file in UTF-8, but line {line} holds a zero byte; save it as UTF-8"
        )
    try:
        return raw.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise LikewiseError(not_utf8(name, owner, line, raw[error.start])) from None


def read_parquet(file: str, owner: str = "table", without: Iterable[str] = ()) -> Sheet:
    """Return the columns of a Parquet file as Python values, except those named in `without`."""
    import pyarrow.parquet as pq

    from likewise.core.files import text_cells  # as in `parquet_errors`: tables without Parquet do not need it

    name = Path(file).name
    with parquet_errors(file, owner):
        head = pq.read_schema(file).names
        check_head(head, name, owner)
        table = pq.read_table(file, columns=[column for column in head if column not in without])
        check_rows(table.num_rows, name, owner)
        columns = {column: text_cells(table[column]) for column in table.column_names}
    return Sheet(owner, name, columns, range(1, table.num_rows + 1), unit="row")


@contextmanager
def parquet_errors(file: str | os.PathLike, owner: str) -> Iterator[None]:
    """Turn any error of pyarrow about a damaged file into a LikewiseError."""
    try:
        yield
    except LikewiseError:
        raise
    except Exception as error:
        from likewise.core.files import first_line  # imported late: only this error needs it

        raise LikewiseError(
            f"{owner}: {Path(file).name} is not a readable Parquet file ({first_line(error)}); write it again"
        ) from None


def check_head(head: list[str], name: str, owner: str) -> None:
    """Raise if two columns have the same name."""
    twice = sorted({column for column in head if column and head.count(column) > 1})
    if twice:
        raise LikewiseError(f"{owner}: {name} has the column {twice[0]!r} more than once; rename or remove one")


def check_rows(count: int, name: str, owner: str) -> None:
    """Raise if a table has no rows."""
    if not count:
        raise LikewiseError(
            f"{owner}: {name} must hold at least one row, but it has only a header; fill it or remove it"
        )
