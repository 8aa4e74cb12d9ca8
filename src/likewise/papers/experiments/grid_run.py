"""Run the trainings of a grid, several at once, in an order that is useful at any moment, and write its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from likewise.core.files import make_folder
from likewise.core.progress import bar
from likewise.core.settings import Bench
from likewise.papers.experiments.budget import Budget
from likewise.papers.experiments.executors import Executor
from likewise.papers.experiments.grid_types import SEED_AXIS, Grid, cell_name
from likewise.papers.experiments.jobs import GridPlan, PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.runs.usage import cost


def run_grid(
    plan: GridPlan, config: Bench, executor: Executor, device: torch.device, budget: Budget | None = None
) -> BenchmarkTable:
    """Train the chosen cells that are not finished, and return the table of all finished trainings; writes its files.

    A training that fails is listed with its error; the others continue.
    """
    budget, wanted = budget or Budget(None), plan.chosen if config.train else set()
    runs = train_all(
        in_useful_order(plan), wanted, executor, config.quiet, budget, lambda runs: save_results(plan, runs)
    )
    from likewise.papers.experiments.table_files import (
        write_table,  # imported late: only the table needs its dependencies
    )

    notes = (*plan.notes, *next_call(runs, plan.chosen, budget))
    return write_table(replace(plan, runs=in_table_order(runs), notes=notes), config, device)


def save_results(plan: GridPlan, runs: Sequence[PlannedRun]) -> None:
    """Write results.csv in the middle of a grid, so that a killed bench leaves the records of its finished trainings."""
    from likewise.papers.experiments.table_files import write_results  # imported late, as in run_grid

    make_folder(plan.folder, "bench")
    write_results(plan.folder / "results.csv", in_table_order(runs), list(plan.grid.axes))


def in_table_order(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the trainings in the order of their cells."""
    return sorted(runs, key=lambda t: (t.number, t.fold or 0))


def in_useful_order(plan: GridPlan) -> list[PlannedRun]:
    """Return the trainings in an order whose every prefix is useful: each row once before any row twice, `first` rows first.

    So: the first seed of the first column for all rows, then of the next column, and so on; then the next seed.
    """
    grid = plan.grid

    def priority(t: PlannedRun) -> tuple:
        named = [grid.first.index(name) for name in t.cell.names.values() if name in grid.first]
        return (
            place_on(grid, SEED_AXIS, t),
            *(place_on(grid, axis, t) for axis in grid.columns),
            min(named, default=len(grid.first)),
            t.number,
            t.fold or 0,
        )

    return sorted(plan.runs, key=priority)


def place_on(grid: Grid, axis: str, t: PlannedRun) -> int:
    """Return the position of a training on an axis; 0 if the grid does not have the axis."""
    names = [point.name for point in grid.axes.get(axis, [])]
    return names.index(t.cell.names[axis]) if names else 0


def train_all(
    plan: Sequence[PlannedRun],
    wanted: set[int],
    executor: Executor,
    quiet: bool,
    budget: Budget,
    after: Callable[[Sequence[PlannedRun]], None] = lambda plan: None,
) -> list[PlannedRun]:
    """Train the wanted cells that are not finished, several at once, while they fit the budget; return the plan with errors.

    Args:
        after: called with the plan after every training.
    """
    mine = [place for place, t in enumerate(plan) if t.number - 1 in wanted]
    plan, left, failed = list(plan), [place for place in mine if not plan[place].finished], 0
    if not left:
        return plan
    for t in plan:
        budget.record(duration(t))
    title = bar("bench", len(mine), start=len(mine) - len(left), quiet=quiet)
    try:
        with executor, title as progress, budget.alarm():
            for place, outcome in executor.work([plan[i].job.config for i in left], budget.fits):
                done = replace(plan[left[place]], error=outcome.error)
                plan[left[place]] = done
                budget.record(duration(done))
                failed += outcome.error is not None
                progress.advance(1, f"{failed} failed" if failed else "")
                after(plan)
    except KeyboardInterrupt:
        if not budget.is_spent():
            raise
    return plan


def duration(t: PlannedRun) -> float:
    """Return the seconds that a finished training of this machine took, with its evaluation; 0 if it is not finished here."""
    if not t.finished or t.record:
        return 0.0
    spent = cost(t.job.run)
    return (spent["train_seconds"] or 0.0) + (spent["evaluate_seconds"] or 0.0)


def next_call(plan: Sequence[PlannedRun], wanted: set[int], budget: Budget) -> list[str]:
    """Return a note that names the trainings for which the budget did not suffice, and the next one; [] without them."""
    left = [t for t in plan if t.number - 1 in wanted and not t.finished and not t.error]
    if budget.minutes is None or not left:
        return []
    hours = f"; at {budget.longest:.0f} s each, all need {budget.longest * len(left) / 60:.0f} minutes" * (
        budget.longest > 0
    )
    return [
        f"The budget of {budget.minutes:g} minutes is used up, and {len(left)} trainings are left. The same command continues "
        f"with {cell_name(left[0].cell)}{hours}."
    ]
