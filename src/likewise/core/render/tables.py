"""A table of texts on the terminal and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import rich.table
from rich import markup
from rich.console import Console

from likewise.core.errors import printable
from likewise.core.notebook import table, view


def escape(text: str) -> str:
    """Return a text as a cell of a table that rich prints: no markup, and no control characters."""
    return markup.escape(printable(text, keep="\n"))


@dataclass(frozen=True)
class Table:
    """Texts in lines and columns, notes below them, and the folder of the results."""

    title: str
    columns: list[str]
    lines: list[list[str]]
    notes: list[str] = field(default_factory=list)
    folder: Path = Path()

    @view
    def _repr_html_(self) -> str:
        return table(self.title, self.columns, self.lines, self.notes)


def show_table(table: Table) -> None:
    """Print a table and its notes."""
    shown, least = rich.table.Table(title=escape(table.title), title_justify="left"), 1
    for number, column in enumerate(table.columns):
        cells = [line[number] for line in table.lines]
        values = any("±" in cell or "(1 run)" in cell for cell in cells)  # values are not wrapped, names are
        width = max(map(len, [column, *cells])) if values else min(8, len(column))
        shown.add_column(escape(column), overflow="fold", no_wrap=values, min_width=width)
        least += width + 3
    for line in table.lines:
        shown.add_row(*map(escape, line))
    Console(width=max(Console().width, least)).print(shown)  # a wide table is not truncated
    for note in table.notes:
        print(printable(note, keep="\n"))
