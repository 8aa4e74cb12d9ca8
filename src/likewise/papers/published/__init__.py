"""Published numbers of papers as printed, with their caveats, and functions to read them.

`results.csv` has one line per number, `papers.toml` describes each table and the caveats of its numbers, and `wrong_classes.csv`
lists the test classes with the most retrieval errors in the influence study. All values are in per cent, as printed.
"""

from __future__ import annotations

import csv
import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.files import write_csv

__all__ = ["Number", "Paper", "Printed", "caveats", "find", "numbers", "papers", "write", "wrong_classes"]

KEY_FIELDS = ("paper", "table", "dataset", "noise", "share", "method", "miner", "sampler", "metric")
"""The fields that identify a published number: no two numbers are equal in all of them."""


@dataclass(frozen=True)
class Number:
    """One published number. `noise` and `share`: label noise of the training split ("all": over all columns of the table)."""

    paper: str
    table: str
    dataset: str
    noise: str
    share: float
    method: str
    miner: str  # "" if the table has none; the same for sampler
    sampler: str
    metric: str
    mean: float
    spread: float | None
    spread_is: str  # "std", "interval" (95 %), or "" where there is no spread
    about: tuple[str, ...]  # its caveats


@dataclass(frozen=True)
class Printed:
    """A table of a paper: its content, and the meaning of its ± ("std", "interval" or "")."""

    shows: str
    spread: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper, its tables by their numbers, and its caveats: selectors of the numbers, and the text."""

    title: str
    authors: str
    venue: str
    year: int
    tables: dict[str, Printed]
    caveats: tuple[tuple[tuple[dict, ...], str], ...]


@cache
def papers() -> dict[str, Paper]:
    """Return all papers by key."""
    content = tomllib.loads((files(__name__) / "papers.toml").read_text("utf-8"))
    by_key = {}
    for key, entry in content.items():
        tables = {name: Printed(**table) for name, table in entry.pop("tables").items()}
        notes = tuple((tuple(c.get("where", [{}])), " ".join(c["text"].split())) for c in entry.pop("caveats"))
        by_key[key] = Paper(**entry, tables=tables, caveats=notes)
    return by_key


def fits(line: Mapping[str, object], where: dict[str, str | list[str]]) -> bool:
    """Return whether a number matches a selector of a caveat: each field equals a value, is in a list, or is "not" a value."""
    for field, wanted in where.items():
        if isinstance(wanted, str) and wanted.startswith("not "):
            good = line[field] != wanted.removeprefix("not ")
        else:
            good = line[field] in ([wanted] if isinstance(wanted, str) else wanted)
        if not good:
            return False
    return True


@cache
def _all_numbers() -> tuple[Number, ...]:
    with (files(__name__) / "results.csv").open(encoding="utf-8", newline="") as file:  # pyright: ignore[reportCallIssue]
        return tuple(map(_number, csv.DictReader(file)))


def _number(line: dict[str, str]) -> Number:
    paper = papers()[line["paper"]]
    notes = tuple(text for where, text in paper.caveats if any(fits(line, one) for one in where))
    spread = float(line["spread"]) if line["spread"] else None
    spread_is = paper.tables[line["table"]].spread if line["spread"] else ""
    numeric = {"share": float(line["share"]), "mean": float(line["mean"]), "spread": spread}
    return Number(**{**line, **numeric}, spread_is=spread_is, about=notes)


@cache
def _values(field: str) -> dict[str, str]:
    """Return lower-case value -> value as written of a field, over all published numbers, in the order of results.csv."""
    return {str(getattr(n, field)).casefold(): getattr(n, field) for n in _all_numbers()}


def numbers(**where: str | float) -> list[Number]:
    """Return the numbers with these field values, in any case: `numbers(paper="procsim", table=5, dataset="cub200")`.

    An unknown name raises an error; a combination of known names without a number gives an empty list.
    """
    for field in where:
        if field not in KEY_FIELDS:
            raise LikewiseError(
                f"published: a number has no field '{field}'{nearest_name(field, KEY_FIELDS)} Select by: {', '.join(KEY_FIELDS)}"
            )
    found = list(_all_numbers())
    for field in KEY_FIELDS:
        if field in where:
            value = _share(where[field]) if field == "share" else _known(field, str(where[field]), found)
            found = [n for n in found if getattr(n, field) == value]
    return found


def _known(field: str, name: str, found: list[Number]) -> str:
    """Return the name as printed. The suggestions of the error depend on the fields that are selected already."""
    values = _values(field)
    if name.casefold() not in values:
        there = [value for value in dict.fromkeys(getattr(n, field) for n in found) if value] or list(values.values())
        raise LikewiseError(
            f"published: there is no {field} '{name}'{nearest_name(name, there)} There are: {', '.join(there)}"
        )
    return values[name.casefold()]


def _share(value: str | float) -> float:
    try:
        return float(value)
    except ValueError:
        raise LikewiseError(f"published: share must be a number such as 0.5, got '{value}'") from None


def caveats(paper: str, table: str | int) -> list[str]:
    """Return the caveats of one table, each once."""
    return list(dict.fromkeys(text for n in numbers(paper=paper, table=table) for text in n.about))


def find(noise: str | None = None, method: str | None = None, **where: str | None) -> list[Number]:
    """Return the numbers for a search from the command line; raise if there are none.

    Args:
        noise: a noise model, with or without its share: "uniform 0.5".
        method: part of a method name.
        where: other fields, as in `numbers`; None: any value.
    """
    kind, _, share = (noise or "").partition(" ")
    filters = {"noise": kind, "share": share} | where
    found = numbers(**{field: value for field, value in filters.items() if value})
    named = [n for n in found if (method or "").casefold() in n.method.casefold()]
    if not named:
        given = ", ".join(f"{field} {value}" for field, value in (filters | {"method": method}).items() if value)
        methods = ", ".join(dict.fromkeys(n.method for n in found)) or "nothing; use fewer filters"
        raise LikewiseError(f"published: no paper prints a number for {given}. Without the method there is: {methods}")
    return named


def write(found: Iterable[Number], file: Path) -> None:
    """Write numbers to a .csv file with one column per field; the caveats are in the last column."""
    fields = [f.name for f in dataclasses.fields(Number)]
    lines = [[getattr(n, field) for field in fields[:-1]] + [" ".join(n.about)] for n in found]
    write_csv(file, fields, lines)


@cache
def wrong_classes(dataset: str) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return (method, seed) -> the ten test classes with the most retrieval errors in the influence study, worst first.

    Class numbers start at 0 and include the training classes, as in the published lists: CUB200 by folder, Cars196 by id, InShop
    with the test classes after the 3,997 of the training split.
    """
    with (files(__name__) / "wrong_classes.csv").open(encoding="utf-8", newline="") as file:  # pyright: ignore[reportCallIssue]
        lines = list(csv.DictReader(file))
    there = list(dict.fromkeys(line["dataset"] for line in lines))
    if dataset.casefold() not in map(str.casefold, there):
        raise LikewiseError(
            f"published: the influence study has no data set '{dataset}'{nearest_name(dataset, there)} "
            f"There are: {', '.join(there)}"
        )
    return {
        (line["method"], int(line["seed"])): tuple(map(int, line["classes"].split()))
        for line in lines
        if line["dataset"].casefold() == dataset.casefold()
    }
