"""Read CSV and Parquet files as columns of raw cells, with the line number of each row. `schema` parses the cells."""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, eq=False)
class Sheet:
    """Raw cells by column. `line[i]`: position of row i in the file, in `unit`s from 1."""

    owner: str  # name at the start of errors
    file: str  # name of the file, for errors
    column: dict[str, list]
    line: list[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.line)

    def at(self, row: int) -> str:
        """Return the position of a row as text, for errors."""
        return f"{self.file} {self.unit} {self.line[row]}"

    def wrong(self, row: int, rule: str, got: object, advice: str) -> LikewiseError:
        """Return the error of a cell: `rule` names the column and what must hold, `got` is the cell."""
        return LikewiseError(f"{self.owner}: {rule}, got {got!r} in {self.at(row)}; {advice}")

    def need(self, name: str) -> list:
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
    return Sheet(owner, name, columns, list(range(1, table.num_rows + 1)), unit="row")


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
