"""The papers' numbers as printed, with their caveats, and the reader for them.

`results.csv` has a line a number, `papers.toml` says what each table shows and which caveats hold for which numbers, and
`wrong_classes.csv` names the test classes that the influence study found most often wrong. All per cent, as printed.
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

from likewise.errors import LikewiseError, nearest_name
from likewise.io.files import write_csv

__all__ = ["Number", "Paper", "Printed", "caveats", "find", "numbers", "papers", "write", "wrong_classes"]

NAMED = ("paper", "table", "dataset", "noise", "share", "method", "miner", "sampler", "metric")
"""The fields that say which number it is: no two numbers are alike in all of them."""


@dataclass(frozen=True)
class Number:
    """One printed number. `noise` and `share`: of the training labels ("all": over all columns of its table)."""

    paper: str
    table: str
    dataset: str
    noise: str
    share: float
    method: str
    miner: str  # "" where a table knows none, as is sampler
    sampler: str
    metric: str
    mean: float
    spread: float | None
    spread_is: str  # "std", "interval" (95 %), or "" where there is no spread
    about: tuple[str, ...]  # the caveats that hold for it


@dataclass(frozen=True)
class Printed:
    """A table of a paper: what it shows, and what stands behind its ±."""

    shows: str
    spread: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper, its tables as it numbers them, and its caveats: which numbers each is about, and the text."""

    title: str
    authors: str
    venue: str
    year: int
    tables: dict[str, Printed]
    caveats: tuple[tuple[tuple[dict, ...], str], ...]


@cache
def papers() -> dict[str, Paper]:
    """Every paper by its key."""
    content = tomllib.loads((files(__name__) / "papers.toml").read_text("utf-8"))
    found = {}
    for key, about in content.items():
        tables = {name: Printed(**said) for name, said in about.pop("tables").items()}
        said = tuple((tuple(c.get("where", [{}])), " ".join(c["text"].split())) for c in about.pop("caveats"))
        found[key] = Paper(**about, tables=tables, caveats=said)
    return found


def fits(line: Mapping[str, object], where: dict[str, str | list[str]]) -> bool:
    """Whether a selector of a caveat is about this number: every field is the one, among several, or "not" the one."""
    for field, wanted in where.items():
        if isinstance(wanted, str) and wanted.startswith("not "):
            good = line[field] != wanted.removeprefix("not ")
        else:
            good = line[field] in ([wanted] if isinstance(wanted, str) else wanted)
        if not good:
            return False
    return True


@cache
def _all() -> tuple[Number, ...]:
    with (files(__name__) / "results.csv").open(encoding="utf-8", newline="") as file:  # pyright: ignore[reportCallIssue]
        return tuple(map(_number, csv.DictReader(file)))


def _number(line: dict[str, str]) -> Number:
    paper = papers()[line["paper"]]
    about = tuple(text for where, text in paper.caveats if any(fits(line, one) for one in where))
    spread = float(line["spread"]) if line["spread"] else None
    is_what = paper.tables[line["table"]].spread if line["spread"] else ""
    numeric = {"share": float(line["share"]), "mean": float(line["mean"]), "spread": spread}
    return Number(**{**line, **numeric}, spread_is=is_what, about=about)


@cache
def _values(field: str) -> dict[str, str]:
    """What a field can be, in the order of the file, by its name in small letters."""
    return {str(getattr(n, field)).casefold(): getattr(n, field) for n in _all()}


def numbers(**where: str | float) -> list[Number]:
    """The numbers whose fields equal what is given, names in any case: `numbers(paper="procsim", table=5, dataset="cub200")`.

    A name that no paper has is an error; what no paper printed under known names is an empty list.
    """
    for field in where:
        if field not in NAMED:
            raise LikewiseError(
                f"published: a number has no field '{field}'{nearest_name(field, NAMED)} Choose by: {', '.join(NAMED)}"
            )
    found = list(_all())
    for field in NAMED:
        if field in where:
            value = _share(where[field]) if field == "share" else _known(field, str(where[field]), found)
            found = [n for n in found if getattr(n, field) == value]
    return found


def _known(field: str, name: str, found: list[Number]) -> str:
    """The name as printed. What there is to choose from depends on what is chosen already."""
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
    """What must be known about the numbers of one table, each once."""
    return list(dict.fromkeys(text for n in numbers(paper=paper, table=table) for text in n.about))


def find(noise: str | None = None, method: str | None = None, **where: str | None) -> list[Number]:
    """As `numbers`, as a person asks: None leaves a field open, `method` is a part of a name, and `noise` may have its share:
    "uniform 0.5". Nothing found is an error."""
    kind, _, share = (noise or "").partition(" ")
    asked = {"noise": kind, "share": share} | where
    found = numbers(**{field: value for field, value in asked.items() if value})
    named = [n for n in found if (method or "").casefold() in n.method.casefold()]
    if not named:
        said = ", ".join(f"{field} {value}" for field, value in (asked | {"method": method}).items() if value)
        methods = ", ".join(dict.fromkeys(n.method for n in found)) or "nothing; ask for less"
        raise LikewiseError(f"published: no paper prints a number for {said}. Without the method there is: {methods}")
    return named


def write(found: Iterable[Number], file: Path) -> None:
    """Numbers as a .csv file, every field a column, caveats in the last one."""
    fields = [f.name for f in dataclasses.fields(Number)]
    lines = [[getattr(n, field) for field in fields[:-1]] + [" ".join(n.about)] for n in found]
    write_csv(file, fields, lines)


@cache
def wrong_classes(dataset: str) -> dict[tuple[str, int], tuple[int, ...]]:
    """Of each run of the influence study, by method and seed: the ten test classes with most wrong answers, the worst first.

    Classes count from 0 over the whole set, training classes included, as its published lists do: CUB200 by folder, Cars196
    by id, InShop with the test classes after the 3,997 of the training split.
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
