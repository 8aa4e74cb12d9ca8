"""Coverage of the papers: for every section, table, figure and equation the command that runs it, and how far it is the paper's.

`coverage.toml` has one list per paper. `likewise list tables` prints the tables and figures, `docs/coverage.md` everything.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rich.console import Console
from rich.table import Table
from rich.text import Text

from likewise.core.notebook import table, view
from likewise.core.render.tables import escape

STATUS_NAMES = ("faithful", "deviates", "cannot")
"""Whether an item is what the paper states: it is; it is not, and `how`; it is not possible, and `why`."""

PRINTED_PLACE = re.compile(r"(tables?|figures?) \d+(-\d+)?")
"""The `where` of an entry about a whole table or figure, or several figures."""

STATUS_STYLES = {"faithful": "green", "deviates": "yellow", "cannot": "red"}
"""Status -> colour on the terminal."""

STATUS_SIGNS = {"faithful": "\N{CHECK MARK}", "deviates": "\N{ALMOST EQUAL TO}", "cannot": "\N{MULTIPLICATION X}"}
"""Status -> sign in front of an item."""

MAX_LINE_LETTERS = 120
"""Largest width of the list on the terminal."""


@dataclass(frozen=True)
class Covered:
    """One item of a paper.

    Args:
        paper: key of the paper, as in `papers()`.
        where: "table 4", "figures 5-12", "eq. 10", "section A.1", or a part: "table 1, DRML rows".
        what: what the item is.
        status: one of STATUS_NAMES.
        command: the command that runs or shows it.
        files: the files that define it, inside the package.
        how: how it deviates. For a faithful item an optional remark.
        why: why it cannot be had.
    """

    paper: str
    where: str
    what: str
    status: str
    command: str = ""
    files: tuple[str, ...] = ()
    how: str = ""
    why: str = ""

    @property
    def remark(self) -> str:
        """How it deviates or why it cannot be had; "" for a faithful item without a remark."""
        return self.why or self.how

    @property
    def is_printed(self) -> bool:
        """Whether the item is a whole table or figure."""
        return bool(PRINTED_PLACE.fullmatch(self.where))

    @property
    def is_grid(self) -> bool:
        """Whether the item is of a table or figure, and its command runs a whole grid."""
        return bool(PRINTED_PLACE.match(self.where) and re.fullmatch(r"likewise bench \S+", self.command))


@cache
def coverage() -> tuple[Covered, ...]:
    """Return all items, paper by paper, in the order of the papers."""
    content = tomllib.loads((files("likewise.papers.published") / "coverage.toml").read_text("utf-8"))
    return tuple(
        Covered(paper, **{**one, "files": tuple(one.get("files", ()))})
        for paper, items in content.items()
        for one in items
    )


def status_counts(paper: str | None = None) -> dict[str, int]:
    """Return status -> number of items, of one paper or of all."""
    counted = Counter(one.status for one in coverage() if paper in (None, one.paper))
    return {status: counted[status] for status in STATUS_NAMES}


def printed_places() -> dict[str, tuple[Covered, ...]]:
    """Return key of a paper -> its tables, then its figures, by number; parts of them only if they are a grid of their own."""
    whole = {one.command for one in coverage() if one.is_printed}
    printed = [one for one in coverage() if one.is_printed or (one.is_grid and one.command not in whole)]
    keys = dict.fromkeys(one.paper for one in coverage())
    return {key: tuple(sorted((one for one in printed if one.paper == key), key=_order)) for key in keys}


def _order(one: Covered) -> tuple[bool, int]:
    kind, numbers = one.where.partition(",")[0].split()
    return kind.startswith("figure"), int(numbers.split("-")[0])


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
