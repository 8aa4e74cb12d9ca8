"""Shared by figures: the trainings of a table grouped over seeds, and pairs of rows with and without rho-regularisation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from likewise.core.render.figures import Estimate
from likewise.papers.benchmark_table import BenchmarkTable, label
from likewise.papers.grid import Grid, place_of
from likewise.papers.grid_plan import PlannedRun
from likewise.papers.published import Number

REGULARISED_PREFIX = "R-"
"""How the names of rows with rho-regularisation begin, in the tables of the study and here."""

DISTANCE_SUFFIX = " (D)"
"""How the names of rows with distance-weighted mining end: the partners of the regularised rows."""


class SeedGroup(NamedTuple):
    """The finished trainings of one cell: name of its row (and column), names on the axes, score, and published number."""

    row: str
    names: dict[str, str]
    score: Estimate
    printed: Number | None
    runs: list[PlannedRun]


def seed_groups(grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun]) -> tuple[str, list[SeedGroup]]:
    """Return the first metric of the grid and, for every cell with finished seeds, the group of its trainings."""
    metric = done[0].job.config.metrics[0]
    entries = {(e.row, e.column[:-1]): e for e in sheet.entries if e.column[-1] == metric and e.values}
    runs: dict[tuple, list[PlannedRun]] = {}
    for t in done:
        runs.setdefault(place_of(grid, t.cell.names), []).append(t)
    groups = []
    for place, trained in runs.items():
        if place in entries:
            one = entries[place]
            score = Estimate.of([one.scale * value for value in one.values])
            row, column = place
            groups.append(SeedGroup(label([*row, *column]), trained[0].cell.names, score, one.printed, trained))
    return metric, groups


def data_name(done: Sequence[PlannedRun]) -> str:
    """Return the short name of the data set, for the title of a figure."""
    return Path(done[0].job.config.data.split("(")[0]).stem


def partners(rows: Iterable[str]) -> dict[str, str]:
    """Return row without rho-regularisation -> its row with it: "R-X" is the partner of "X (D)", or else of "X"."""
    rows = list(rows)
    found = {}
    for name in rows:
        bare = name.removeprefix(REGULARISED_PREFIX)
        plain = next((row for row in (bare + DISTANCE_SUFFIX, bare) if row in rows), None)
        if bare != name and plain:
            found[plain] = name
    return found
