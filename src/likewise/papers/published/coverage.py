"""Coverage of the papers: for every section, table, figure and equation the command that runs it, and how far it is the paper's.

`coverage.toml` has one list per paper. `likewise list tables` prints the tables and figures, `docs/coverage.md` everything.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

STATUS_NAMES = ("faithful", "deviates", "cannot")
"""Whether an item is what the paper states: it is; it is not, and `how`; it is not possible, and `why`."""

PRINTED_PLACE = re.compile(r"(tables?|figures?) \d+(-\d+)?")
"""The `where` of an entry about a whole table or figure, or several figures."""


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
