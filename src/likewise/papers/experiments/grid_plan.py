"""Plan a grid: all trainings with checked settings, their cells, and their differences from the paper's settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from likewise.core.settings import Bench
from likewise.core.settings.overrides import must_know
from likewise.core.types import LikewiseError
from likewise.papers.experiments.deviations import assumed, counterpart, differences
from likewise.papers.experiments.grid import adapted, as_train, cells, chosen, read_grid, shipped, table_names
from likewise.papers.experiments.grid_types import Grid, cell_name
from likewise.papers.experiments.jobs import GridPlan, PlannedRun, Planner
from likewise.papers.published import numbers

SHARED_RUNS_FOLDER = Path("bench") / "runs"
"""Default folder of the runs. All tables share it, so a training in two tables runs once."""


def plan_grid(config: Bench, say: Callable[[str], None]) -> GridPlan:
    """Return the plan of the grid of bench; all settings are checked before the first training."""
    grid = adapted(read_grid(config.grid), config.data, config.root, config.set, config.quick)
    folder = Path(config.out or Path("bench") / grid.name).expanduser()
    check_published(grid)
    runs = lay_out(grid, config, Planner(folder / "runs" if config.out else SHARED_RUNS_FOLDER, say))
    return GridPlan(grid, folder, runs, set(chosen(cells(grid), config.only)))


def check_published(grid: Grid) -> None:
    """Raise unless the published keys of all points are in the table of the paper; the error suggests the nearest name."""
    known_numbers = (
        numbers(**{key: value for key, value in grid.published.items() if key != "dataset"}) if grid.published else []
    )
    for method in grid.published_only:
        must_know(method, {n.method: None for n in known_numbers}, "printed method")
    for point in (point for along in grid.axes.values() for point in along if known_numbers):
        for key, value in point.published.items():
            known = {f"{n.share:g}" if key == "share" else getattr(n, key): None for n in known_numbers}
            must_know(f"{float(value):g}" if key == "share" else value, known, f"printed {key}")


def lay_out(grid: Grid, config: Bench, planner: Planner) -> list[PlannedRun]:
    """Return all trainings of the grid with checked settings and their differences from the paper; raises for a repeated run."""
    from likewise.learn.training.defaults import fold_specs

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
        published = counterpart(cell, paper)
        there = as_train(published.settings, **ours) if published else None
        of_paper = bool(published) or (grid.name in table_names() and not grid.published)
        differs = differences(cell, whole, published, there) if of_paper else ()
        taken = assumed(cell) if of_paper else ()
        for fold, job in enumerate(jobs):
            if seen.setdefault(job.identity, cell) is not cell:
                raise LikewiseError(
                    f"bench: {cell_name(seen[job.identity])} and {cell_name(cell)} are the same run; drop one of them"
                )
            plan.append(PlannedRun(number, cell, fold if folds else None, job, differs, taken))
    return plan


def names(training: PlannedRun, columns: Sequence[str]) -> list[str]:
    """Return the names of a training on the axes among these columns."""
    known = training.cell.names | ({} if training.fold is None else {"fold": str(training.fold)})
    return [known[column] for column in columns if column in known]


def data_of(grid: Grid, training) -> str:
    """Return the name of its data set in lower case, as the papers' numbers have it."""
    return str(grid.published.get("dataset", training.job.config.data.split("(")[0])).casefold()
