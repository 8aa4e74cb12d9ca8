"""Published numbers on the terminal: tables with notes, or tab-separated lines for other programs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby

from rich.console import Console

from likewise.core.errors import print_text
from likewise.core.files import check_output_path
from likewise.core.notebook import table, view
from likewise.core.render.tables import Table, show_table
from likewise.core.settings import Published, check
from likewise.papers.published import find, numbers, papers, write

TEXT_FIELDS = ("paper", "table", "dataset", "noise", "share", "method", "miner", "sampler", "metric")
"""Fields of a tab-separated line, before mean and spread."""

ROW_FIELDS = ("dataset", "paper", "table", "method", "miner", "sampler")
"""Fields that identify a row; those with one value go into the title."""

MAX_VALUE_COLUMNS = 8
"""Largest number of value columns of one table; above it, each table of a paper is printed separately."""


class Numbers(list):
    """Published numbers. `is_chosen`: False if these are all numbers; the notebook then shows an overview."""

    def __init__(self, found: Iterable, papers: Mapping, *, is_chosen: bool = True):
        super().__init__(found)
        self.papers, self.is_chosen = papers, is_chosen

    @view
    def _repr_html_(self) -> str:
        if not self.is_chosen:
            return overview(self, self.papers)._repr_html_()
        return "".join(one._repr_html_() for one in tables(self, self.papers)) + table(
            "notes", (), [[n] for n in notes_of(self)]
        )


def notes_of(found) -> list[str]:
    """Return the notes on these numbers, each once."""
    return list(dict.fromkeys(text for n in found for text in n.about))


def tables(found, papers) -> list[Table]:
    """Return one table of all numbers if it is narrow enough, otherwise one for each table of a paper."""
    few = len({(labels(n), n.metric) for n in found}) <= MAX_VALUE_COLUMNS
    return [lay_out(list(group), papers) for _, group in groupby(found, lambda n: few or (n.paper, n.table))]


def show_published(found, papers) -> None:
    """Print the numbers as tables, and their notes below; without a terminal, one tab-separated line per number."""
    notes = notes_of(found)
    if Console().is_terminal:
        for one in tables(found, papers):
            show_table(one)
        print("\n".join(f"- {note}" for note in notes))
    else:
        for n in found:
            spread = "" if n.spread is None else f"{n.spread:g}"
            print("\t".join([*(f"{getattr(n, field)}" for field in TEXT_FIELDS), f"{n.mean:g}", spread]))
        print("\n".join(f"note: {note}" for note in notes), file=sys.stderr)


def lay_out(found, papers) -> Table:
    """Return a table with one row per method and one column per label noise and metric; common values go into the title."""
    across = list(dict.fromkeys((labels(n), n.metric) for n in found))
    several = [len({pair[place] for pair in across}) > 1 for place in (0, 1)]
    value = {
        field: {(n.paper, n.table) if field == "table" else getattr(n, field) for n in found} for field in ROW_FIELDS
    }
    shown = [field for field in ROW_FIELDS if field == "method" or len(value[field]) > 1]
    rows: dict[tuple[str, ...], dict] = {}
    sets, digits = list(dict.fromkeys(n.dataset for n in found)), printed_digits(found)
    for n in sorted(found, key=lambda n: sets.index(n.dataset)):
        row = rows.setdefault(tuple(getattr(n, field) for field in shown), {})
        row[labels(n), n.metric] = as_printed(n, digits[n.paper, n.table])
    first = found[0]
    common = [word for word, varies in zip(across[0], several) if not varies]
    common += [getattr(first, field) for field in ("dataset", "miner", "sampler") if field not in shown]
    return Table(
        f"{_heading(first, shown, papers)} ({', '.join(filter(None, common))})",
        [*shown, *(" ".join(word for word, varies in zip(pair, several) if varies and word) or "%" for pair in across)],
        [[*row, *(values.get(pair, "") for pair in across)] for row, values in rows.items()],
    )


def _heading(first, shown: list[str], papers) -> str:
    """Return the table that all numbers are from, or their paper, or "published" for several papers."""
    if "paper" in shown:
        return "published"
    if "table" in shown:
        return first.paper
    name = first.table if first.table.startswith("figure") else f"table {first.table}"
    return f"{first.paper}, {name}: {papers[first.paper].tables[first.table].shows}"


def labels(number) -> str:
    """Return the noise of the training labels as text; "" for a mean over all kinds of noise."""
    known = {"none": "clean", "all": ""}
    return known.get(number.noise, f"{number.noise} {100 * number.share:g} %")


def printed_digits(found) -> dict[tuple[str, str], int]:
    """Return the number of decimals of every table: (paper, table) -> largest number of decimals of its numbers."""
    digits: dict[tuple[str, str], int] = {}
    for n in found:
        longest = max(len(f"{value:g}".partition(".")[2]) for value in (n.mean, n.spread or 0))
        digits[n.paper, n.table] = max(longest, digits.get((n.paper, n.table), 0))
    return digits


def as_printed(number, digits: int) -> str:
    """Return a published number with its spread, if it has one."""
    return f"{number.mean:.{digits}f}" + ("" if number.spread is None else f" ± {number.spread:.{digits}f}")


def overview(found, papers) -> Table:
    """Return a table of all tables of all papers: what each shows, its data sets, and its number of values."""
    count = Counter((n.paper, n.table) for n in found)
    sets = {key: ", ".join(dict.fromkeys(n.dataset for n in found if (n.paper, n.table) == key)) for key in count}
    lines = [[*key, papers[key[0]].tables[key[1]].shows, sets[key], str(number)] for key, number in count.items()]
    return Table(f"{len(found):,} numbers", ["paper", "table", "shows", "data", "numbers"], lines)


def show_papers(found, papers) -> None:
    """Print the overview of all tables, the papers, and the flags that select numbers."""
    whole = overview(found, papers)
    if not Console().is_terminal:
        return print("\n".join("\t".join(line) for line in whole.lines))
    show_table(whole)
    for key, paper in papers.items():
        print(f"{key}: {paper.authors}: {paper.title}, {paper.venue} {paper.year}")
    print("select with --paper, --table, --dataset, --metric, --method and --noise")


def published(config: Published, say=print) -> Numbers:
    """Return the selected published numbers, or all without a selection, and write them to `config.csv` if it is given."""
    check(config)
    file = check_output_path(config.csv, ".csv", "published", "--csv") if config.csv else None
    chosen = {name: value for name, value in vars(config).items() if name != "csv" and value}
    found = find(**chosen) if chosen else numbers()
    if file:
        write(found, file)
    return Numbers(found, papers(), is_chosen=bool(chosen))


def show_numbers(found: Numbers, config: Published) -> None:
    """Print the selected numbers, or the overview of all papers, and the path of the file."""
    (show_published if found.is_chosen else show_papers)(found, found.papers)
    if config.csv:
        print_text(f"numbers: {os.path.expanduser(config.csv)}")
