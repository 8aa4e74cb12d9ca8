"""Tables and figures of papers on the terminal and in a notebook: what each shows, its command, and what cannot be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from likewise.core.notebook import table, view
from likewise.core.render.tables import escape

STATUS_STYLES = {"faithful": "green", "deviates": "yellow", "cannot": "red"}
"""Status -> colour on the terminal."""

STATUS_SIGNS = {"faithful": "\N{CHECK MARK}", "deviates": "\N{ALMOST EQUAL TO}", "cannot": "\N{MULTIPLICATION X}"}
"""Status -> sign in front of an item."""

MAX_LINE_LETTERS = 120
"""Largest width of the list on the terminal."""


class PaperListing(dict):
    """Key of a paper -> its tables and figures, each a `likewise.papers.published.coverage.Covered`. `papers`: key -> Paper."""

    def __init__(self, items: Mapping[str, Sequence], papers: Mapping):
        super().__init__(items)
        self.papers = papers

    @view
    def _repr_html_(self) -> str:
        heads = ("", "where", "what", "command", "remark")
        return "".join(
            table(
                title(self.papers[key]),
                heads,
                [(STATUS_SIGNS[one.status], one.where, one.what, one.command, one.remark) for one in items],
            )
            for key, items in self.items()
        )


def title(paper) -> str:
    """Return authors, title, venue and year of a paper."""
    first, *others = paper.authors.split(", ")
    return f"{first}{' et al.' if others else ''}, {paper.title.split(',')[0]}, {paper.venue} {paper.year}"


def show_papers(found: PaperListing) -> None:
    """Print the tables and figures of every paper: what it shows, its command, and the remark if it is not the paper's."""
    console = Console(highlight=False)
    width = min(console.width, MAX_LINE_LETTERS)
    for key, items in found.items():
        console.print(Text(title(found.papers[key]), "bold"), width=width, end="\n\n")
        grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), width=width)
        grid.add_column(no_wrap=True, width=1)
        grid.add_column(no_wrap=True, min_width=max(len(one.where) for one in items))
        grid.add_column(ratio=1, overflow="fold")
        for one in items:
            style = STATUS_STYLES[one.status]
            lines = [Text(one.what)]
            lines += [Text(one.command, "cyan")] if one.command else []
            if one.remark:
                is_faithful = one.status == "faithful"
                lines.append(Text(one.remark, "dim") if is_faithful else Text(f"{one.status}: {one.remark}", style))
            grid.add_row(Text(STATUS_SIGNS[one.status], style), Text(one.where), Text("\n").join(lines))
        console.print(grid)
        console.print()
    signs = ", ".join(f"[{STATUS_STYLES[one]}]{sign}[/] {escape(one)}" for one, sign in STATUS_SIGNS.items())
    console.print(f"{signs}. Data: add --root FOLDER to a bench, or --quick for a small test on glyphs.", width=width)
