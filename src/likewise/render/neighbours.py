"""The results of a search: a table for the terminal or a notebook, tab-separated lines for other programs."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from likewise._notebook import table, view
from likewise.errors import printable
from likewise.render.tables import escape

COLUMN_HEADS = ("", "similarity", "class", "row", "path")
"""Heads of the table."""


class Neighbours(list):
    """Nearest rows of a query, nearest first: dicts with row, similarity, class, path and same."""

    def __init__(self, found: Iterable[dict] = (), query: str = ""):
        super().__init__(found)
        self.query = query

    @view
    def _repr_html_(self) -> str:
        lines = [(place, *line) for place, line in enumerate(lines_of(self), 1)]
        return table(f"nearest to {self.query}", COLUMN_HEADS, lines, notes_of(self))


def lines_of(found: Iterable[dict]) -> list[tuple[str, str, str, str]]:
    """Return similarity, class, row and path of every neighbour as text."""
    return [(f"{one['similarity']:.4f}", one["class"], str(one["row"]), one["path"]) for one in found]


def notes_of(found: Iterable[dict]) -> list[str]:
    """Return a note for every neighbour that is the query image itself."""
    return [f"row {one['row']} is the same image" for one in found if one["same"]]


def show_neighbours(found: Neighbours) -> None:
    """Print a table on a terminal, otherwise one line per neighbour with its fields separated by tabs."""
    console = Console()
    if not console.is_terminal:
        for line in lines_of(found):
            print("\t".join(map(printable, line)))
        return
    shown = Table(*COLUMN_HEADS[:-1], title=f"nearest to {escape(found.query)}", title_justify="left")
    shown.add_column(COLUMN_HEADS[-1], overflow="fold")
    for place, line in enumerate(lines_of(found), 1):
        shown.add_row(str(place), *map(escape, line))
    console.print(shown)
    for note in notes_of(found):
        print(note)
