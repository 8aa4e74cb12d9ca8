"""The plan of a grid: every training with its settings checked, its place in the table, and how it differs from the paper's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from likewise.config import KEPT_OUT, Bench, Train
from likewise.config.overrides import must_know
from likewise.config.spec import brief
from likewise.experiments.grid import adapted, as_train, cells, chosen, read_grid, shipped
from likewise.experiments.grid_types import SEED, Cell, Grid
from likewise.experiments.jobs import GridPlan, PlannedRun, Planner
from likewise.published import numbers
from likewise.types import LikewiseError

RUNS = Path("bench") / "runs"
"""Where trainings stand unless `out` says otherwise: all tables share them, so what two have in common is trained once."""


def plan_grid(config: Bench, say: Callable[[str], None]) -> GridPlan:
    """Read the grid that the settings of bench name, and check all of it before the first training."""
    grid = adapted(read_grid(config.grid), config.data, config.root, config.set, config.quick)
    folder = Path(config.out or Path("bench") / grid.name).expanduser()
    must_be_printed(grid)
    runs = lay_out(grid, config, Planner(folder / "runs" if config.out else RUNS, say))
    return GridPlan(grid, folder, runs, set(chosen(cells(grid), config.only)))


def must_be_printed(grid: Grid) -> None:
    """What points say they stand for is in the table that the grid names, or there is an error with the nearest name."""
    there = (
        numbers(**{key: value for key, value in grid.published.items() if key != "dataset"}) if grid.published else []
    )
    for point in (point for along in grid.axes.values() for point in along if there):
        for key, value in point.published.items():
            known = {f"{n.share:g}" if key == "share" else getattr(n, key): None for n in there}
            must_know(f"{float(value):g}" if key == "share" else value, known, f"printed {key}")


def lay_out(grid: Grid, config: Bench, planner: Planner) -> list[PlannedRun]:
    """Every training of the grid, its settings checked, and in what they are not the paper's. No run may stand there twice."""
    from likewise.runs.defaults import fold_specs

    ours = {k: v for k in ("device", "metrics", "allow_imports") if (v := getattr(config, k))}
    table = None if config.quick else shipped(grid)
    paper = cells(table) if table else []
    plan, seen = [], {}
    for number, cell in enumerate(cells(grid), 1):
        try:
            whole = as_train(cell.settings, **ours)
            folds = fold_specs(whole.protocol) if whole.protocol else None
            jobs = [planner.job(replace(whole, protocol=protocol)) for protocol in folds or [whole.protocol]]
        except LikewiseError as error:
            raise LikewiseError(f"bench: {cell_name(cell)}: {error}") from None
        there = counterpart(cell, paper)
        differs = difference(as_train(there.settings, **ours), whole) if there else ()
        for fold, job in enumerate(jobs):
            if seen.setdefault(job.identity, cell) is not cell:
                raise LikewiseError(
                    f"bench: {cell_name(seen[job.identity])} and {cell_name(cell)} are the same run; leave one of them out"
                )
            plan.append(PlannedRun(number, cell, fold if folds else None, job, differs))
    return plan


def counterpart(cell: Cell, paper: Sequence[Cell]) -> Cell | None:
    """The paper's cell whose printed numbers are this one's, whatever a file of one's own calls it. A method has to be said."""
    alike = [c for c in paper if "method" in cell.published and cell.published.items() <= c.published.items()]
    return min(alike, key=lambda one: len(one.published), default=None)


def difference(there: Train, here: Train) -> tuple[tuple[str, str, str], ...]:
    """The settings that change what is learned and are not the paper's: name, here, there. Specs are short, files by name.

    Another seed is no other setting.
    """
    names = [f.name for f in fields(Train) if f.name == "data" or f.name not in (*KEPT_OUT, SEED)]
    sides = {name: (getattr(here, name), getattr(there, name)) for name in names}
    return tuple((name, _brief(a), _brief(b)) for name, (a, b) in sides.items() if a != b)


def _brief(value: object) -> str:
    if isinstance(value, tuple):
        return " + ".join(map(_brief, value)) or "none"
    if isinstance(value, str) and "(" in value:
        return re.sub(r"'[^']*/([^'/]+)'", r"'\1'", brief(value))
    return "none" if value is None else Path(value).name if isinstance(value, str) else str(value)


def names(training: PlannedRun, columns: Sequence[str]) -> list[str]:
    """Return the names of a training on the axes among these columns."""
    known = training.cell.names | ({} if training.fold is None else {"fold": str(training.fold)})
    return [known[column] for column in columns if column in known]


def cell_name(cell: Cell) -> str:
    """Return the axes and names of a cell as text."""
    return ", ".join(f"{axis} {name}" for axis, name in cell.names.items()) or "the one cell"


def data_of(grid: Grid, training) -> str:
    """Return the name of its data set in lower case, as the papers' numbers have it."""
    return str(grid.published.get("dataset", training.job.config.data.split("(")[0])).casefold()
