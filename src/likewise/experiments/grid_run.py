"""Run the trainings of a grid, several at once, and write its table."""

from __future__ import annotations

from dataclasses import replace

import torch

from likewise.config import Bench
from likewise.experiments.executors import Executor
from likewise.experiments.jobs import GridPlan, PlannedRun
from likewise.io.progress import bar
from likewise.render.benchmark_table import BenchmarkTable


def run_grid(plan: GridPlan, config: Bench, executor: Executor, device: torch.device) -> BenchmarkTable:
    """Train the chosen cells that are not finished, and return the table of all finished trainings; writes its files.

    A training that fails is listed with its error; the others continue.
    """
    runs = train_all(plan.runs, plan.chosen if config.train else set(), executor, config.quiet)
    from likewise.experiments.table_files import (
        write_table,  # imported late: only the table needs its dependencies
    )

    return write_table(replace(plan, runs=runs), config, device)


def train_all(plan: list[PlannedRun], wanted: set[int], executor: Executor, quiet: bool) -> list[PlannedRun]:
    """Train the wanted cells that are not finished, several at once, and return the plan with errors."""
    mine = [place for place, t in enumerate(plan) if t.number - 1 in wanted]
    plan, left, failed = list(plan), [place for place in mine if plan[place].job.state != "finished"], 0
    if not left:
        return plan
    title = bar("bench", len(mine), start=len(mine) - len(left), quiet=quiet)
    with executor, title as progress:
        for place, outcome in executor.work([plan[i].job.config for i in left]):
            plan[left[place]] = replace(plan[left[place]], error=outcome.error)
            failed += outcome.error is not None
            progress.advance(1, f"{failed} failed" if failed else "")
    return plan
