"""bench: train every cell of a grid, or of a paper's table, and write the table beside the published numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from likewise.core.devices import choose_device
from likewise.core.files import atomic_write
from likewise.core.render.tables import Table
from likewise.core.settings import Bench, check
from likewise.core.types import LikewiseError
from likewise.papers.experiments.adopted import adopt
from likewise.papers.experiments.budget import Budget
from likewise.papers.experiments.executors import choose_executor
from likewise.papers.experiments.grid import cells, read_grid
from likewise.papers.experiments.grid_plan import names, plan_grid
from likewise.papers.experiments.grid_run import run_grid
from likewise.papers.experiments.jobs import GridPlan
from likewise.papers.experiments.slurm import script, words_of
from likewise.papers.render.benchmark_table import BenchmarkTable


def bench(config: Bench, say=print) -> BenchmarkTable | Table:
    """Train all cells that are not finished, and return the table; with `list` or `slurm`, only list the trainings."""
    check(config)
    budget = Budget(config.budget)
    if config.budget is not None and (config.executor or config.slurm):
        flag = "--executor" if config.executor else "--slurm"
        raise LikewiseError(f"bench: --budget counts the minutes of this machine, got {flag} as well; drop one of them")
    grid = read_grid(config.grid)
    if grid.is_figure_only:
        return draw_alone(GridPlan(grid, Path(config.out or Path("bench") / grid.name).expanduser(), [], set()), config)
    device = choose_device(config.device)
    executor = None if config.list or config.slurm else choose_executor(config, say)
    plan = plan_grid(config, say)
    runs, notes = adopt(plan.runs, config.adopt)
    plan = replace(plan, runs=runs, notes=tuple(notes))
    return planned(plan, config) if executor is None else run_grid(plan, config, executor, device, budget)


def draw_alone(plan: GridPlan, config: Bench) -> BenchmarkTable | Table:
    """Return the page of a grid without trainings, and draw its figures; no data is read, and no device is used."""
    unused = ("data", "root", "set", "only", "executor", "slurm", "metrics")
    if given := [f"--{flag}" for flag in unused if getattr(config, flag)]:
        raise LikewiseError(f"bench: '{plan.grid.name}' trains nothing, got {', '.join(given)}; leave it out")
    if config.list:
        return planned(plan, config)
    from likewise.papers.experiments.table_files import write_figures  # imported late, as in run_grid

    return write_figures(plan, config)


def planned(plan: GridPlan, config: Bench) -> Table:
    """Return the planned trainings as a table; with `slurm`, also write the script that trains them."""
    grid, runs = plan.grid, [t for t in plan.runs if t.number - 1 in plan.chosen]
    columns = ["cell", *grid.axes, *(["fold"] if any(t.fold is not None for t in runs) else []), "state", "run"]
    lines = [[str(t.number), *names(t, columns), t.state, t.job.run.path.name] for t in runs]
    left = sum(not t.finished for t in runs)
    notes = [f"{left} of {len(runs)} trainings are not finished"]
    if config.slurm:
        if config.only or config.executor:
            flag = "--only" if config.only else "--executor"
            raise LikewiseError(f"bench: --slurm trains every cell that is not finished, got {flag}; drop {flag}")
        file = Path(config.slurm).expanduser()
        if file.is_dir() or not file.parent.is_dir():
            raise LikewiseError(
                f"bench: --slurm must be a file in an existing folder, got '{config.slurm}'; create the folder"
            )
        with atomic_write(file) as aside:
            aside.write_text(script(words_of(config), len(cells(grid)), grid.name, file=str(file)), "utf-8")
        notes.append(f"script: {file} (edit its first lines for your cluster, then submit it with sbatch)")
    return Table(grid.title, columns, lines, notes, plan.folder)
