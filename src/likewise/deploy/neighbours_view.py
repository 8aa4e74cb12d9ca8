"""The results of a search: a table for the terminal or a notebook, tab-separated lines or JSON for other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from likewise.core.errors import print_text, printable
from likewise.core.files import json_text
from likewise.core.notebook import table, view
from likewise.core.render.tables import escape
from likewise.core.settings import Search

COLUMN_HEADS = ("", "similarity", "class", "row", "path")
"""Heads of the table."""


class Neighbours(list):
    """Nearest rows of a query, nearest first: dicts with row, similarity, class, path and same.

    Attributes:
        query: the query as text.
        decision: known or unknown (`index.decision.decide`); None if the run is not calibrated.
        hint: why there is no decision and how to get one, or a warning about the threshold; "" if there is neither.
        new_classes: the classes that were added, and the classes that each is confused with.
        searched: how many images and classes were searched, and of what; "" if unknown.
    """

    searched = ""

    def __init__(
        self, found: Iterable[dict] = (), query: str = "", decision: dict | None = None, hint: str = "", new_classes=()
    ):
        super().__init__(found)
        self.query, self.decision, self.hint, self.new_classes = query, decision, hint, list(new_classes)

    def as_json(self) -> str:
        """Return the neighbours, the decision and the classes that were added as one JSON object."""
        decision = self.decision or dict.fromkeys(("unknown", "label", "probability"))
        fields = {"query": self.query, **decision, "found": list(self), "new_classes": self.new_classes}
        texts = {name: text for name in ("searched", "hint") if (text := getattr(self, name))}
        return json_text(fields | texts)

    @view
    def _repr_html_(self) -> str:
        lines = [(place, *line) for place, line in enumerate(lines_of(self), 1)]
        notes = [f"searched: {self.searched}"] if self.searched else []
        notes += [describe_decision(self.decision)] if self.decision else []
        notes += [self.hint] if self.hint else []
        return table(f"nearest to {self.query}", COLUMN_HEADS, lines, [*notes, *notes_of(self)])


def describe_decision(decision: dict) -> str:
    """Return the decision about a query as a sentence."""
    probability, nearest = f"probability {percent(decision['probability'])}", decision["nearest"]
    if decision["unknown"] is None:
        return f"nearest is {nearest}, {probability}; known or unknown cannot be decided: {decision['reason']}"
    compared = f"similarity {decision['similarity']:.4f}, threshold {decision['threshold']:.4f}"
    if decision["unknown"]:
        return f"unknown: none of the known classes ({compared}); if it is one of them: {nearest}, {probability}"
    return f"{nearest}, {probability} ({compared})"


def percent(share: float) -> str:
    """Return a probability in percent, never rounded to 0 or 100."""
    return "below 1 %" if share < 0.01 else "above 99 %" if share > 0.99 else f"{100 * share:.0f} %"


def lines_of(found: Iterable[dict]) -> list[tuple[str, str, str, str]]:
    """Return similarity, class, row and path of every neighbour as text."""
    return [(f"{one['similarity']:.4f}", one["class"], str(one["row"]), one["path"]) for one in found]


def notes_of(found: Iterable[dict]) -> list[str]:
    """Return a note for every neighbour that is the query image itself."""
    return [f"row {one['row']} is the same image" for one in found if one["same"]]


def show_neighbours(found: Neighbours) -> None:
    """Print a table on a terminal, otherwise one line per neighbour with its fields separated by tabs."""
    console = Console()
    decided = describe_decision(found.decision) if found.decision else ""
    if not console.is_terminal:
        if decided:
            print(printable(decided), file=sys.stderr)  # stdout has one line per neighbour
        for line in lines_of(found):
            print("\t".join(map(printable, line)))
        return
    shown = Table(*COLUMN_HEADS[:-1], title=f"nearest to {escape(found.query)}", title_justify="left")
    shown.add_column(COLUMN_HEADS[-1], overflow="fold")
    for place, line in enumerate(lines_of(found), 1):
        shown.add_row(str(place), *map(escape, line))
    if decided:
        console.print(f"[bold]{escape(decided)}[/]")
    console.print(shown)
    searched = [f"searched: {found.searched}"] if found.searched else []
    for note in [*notes_of(found), *searched, *([found.hint] if found.hint else [])]:
        print(printable(note))


def show_search(found: Neighbours, config: Search) -> None:
    """Print what `likewise search` found: as JSON, or as a table and the path of the figure."""
    if config.json:
        print_text(found.as_json())
    elif config.query is not None:
        show_neighbours(found)
        if config.out:
            print_text(f"figure: {config.out}")
