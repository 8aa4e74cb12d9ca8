"""Reviewed labels of random queries and their first neighbours: a form in a .csv file, and what reviewers wrote into it."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from likewise.core.files import write_csv
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.data.tabular import read_csv
from likewise.score.fixed_ranking import FixedRanking

FORM_QUERIES_COUNT = 300
"""Number of queries in a form. Reviewers need not finish it: queries are in random order."""

FORM_COLUMNS = ("query", "row", "path", "given", "label")


def write_form(file: Path, e: Embedded, items: Items, ranking: FixedRanking, k: int, say, seed: int = 0) -> None:
    """Write random queries and their first k neighbours, one line per sample, with an empty column `label`."""
    order = torch.randperm(len(ranking.query), generator=torch.Generator().manual_seed(seed))[:FORM_QUERIES_COUNT]
    listed, lines = set(), []
    for number in order.tolist():
        query = int(ranking.query[number])
        for place in (query, *(int(near) for near in ranking.row[number, :k] if near >= 0)):
            if place in listed:
                continue
            listed.add(place)
            row = int(e.row[place])
            path = "" if items.path is None else items.path[row]
            lines.append((int(e.row[query]), row, path, items.class_name[items.y[row]], ""))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_csv(file, FORM_COLUMNS, lines)
    say(
        f"wrote {file}: {len(order)} random queries and their first {k} neighbours. Enter the true class of every line into the "
        "column `label`, from the top, as far as you like, and run the same command again"
    )


def read_review(
    file: str, e: Embedded, items: Items, ranking: FixedRanking, y: Int[Tensor, "N"]
) -> tuple[Int[Tensor, "N"], Int[Tensor, "n"], Int[Tensor, "N"]]:
    """Return true labels (-1: unknown), the numbers of the drawn queries in their order, and the given labels `y`.

    A class that no evaluated row was given gets a number of its own.
    """
    sheet = read_csv(file, "evaluate")
    query, row, label = (sheet.need(name) for name in ("query", "row", "label"))
    place = {int(data_row): at for at, data_row in enumerate(e.row.tolist())}
    number_of_query = {int(e.row[at]): number for number, at in enumerate(ranking.query.tolist())}
    number_of_class = {items.class_name[items.y[int(e.row[at])]]: int(y[at]) for at in range(len(y))}
    found, drawn = torch.full_like(y, -1), {}
    for line, one_query, one_row, name in zip(sheet.line, query, row, label):
        asked, sample = (_as_row(cell, sheet.file, line) for cell in (one_query, one_row))
        if asked not in number_of_query:
            raise LikewiseError(
                f"evaluate: line {line} of {sheet.file} must name a query of this evaluation, got row {asked}; use the form that "
                "this command writes"
            )
        if sample not in place:
            raise LikewiseError(f"evaluate: line {line} of {sheet.file} must name an evaluated row, got row {sample}")
        drawn.setdefault(number_of_query[asked], None)
        if not name.strip():
            continue
        number = number_of_class.setdefault(name.strip(), len(number_of_class))
        if found[place[sample]] not in (-1, number):
            raise LikewiseError(
                f"evaluate: row {sample} must have one label in {sheet.file}, got another one in line {line}; decide for one"
            )
        found[place[sample]] = number
    return found, torch.tensor(list(drawn)), y


def _as_row(cell: str, file: str, line: int) -> int:
    try:
        return int(cell)
    except ValueError:
        raise LikewiseError(
            f"evaluate: query and row in line {line} of {file} must be whole numbers, counted from 0, got {cell!r}"
        ) from None
