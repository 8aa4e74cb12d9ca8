"""Notes on rows of a table: a text, and the rows that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

ALL_ROWS = "all rows"
MIN_ROWS_PER_EXCEPTION = 4
"""A note names its exceptions, instead of all other rows, if at most one row in this many is an exception."""


class RowNote(NamedTuple):
    """A text, and the names of the rows that it is about; no names: all rows."""

    text: str
    rows: tuple[str, ...] = ()


def notes_by_rows(texts: Mapping[str, Iterable[str]]) -> tuple[RowNote, ...]:
    """Return row -> its texts as notes: texts of the same rows are one note, and the notes on all rows come first."""
    rows_of: dict[str, list[str]] = {}
    for row, own in texts.items():
        for text in dict.fromkeys(own):
            rows_of.setdefault(text, []).append(row)
    joined: dict[tuple[str, ...], list[str]] = {}
    for text, rows in rows_of.items():
        joined.setdefault(() if len(rows) == len(texts) else tuple(rows), []).append(text)
    notes = [RowNote("; ".join(own), rows) for rows, own in joined.items()]
    return tuple(sorted(notes, key=lambda note: bool(note.rows)))


def of_rows(note: RowNote, shown: Mapping[str, str]) -> str:
    """Return which rows a note is about as text: "all rows", "all rows but A", or their names.

    Args:
        shown: name of every row -> the name to write.
    """
    if not note.rows:
        return ALL_ROWS
    but = [text for row, text in shown.items() if row not in note.rows]
    names = but if len(shown) > len(but) * MIN_ROWS_PER_EXCEPTION else [shown.get(row, row) for row in note.rows]
    joined = ("; " if any("," in name for name in names) else ", ").join(names)
    return f"{ALL_ROWS} but {joined}" if names is but else joined
