"""bench: train every cell of a grid, or of a paper's table, and write the table beside the published numbers."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from likewise.core.devices import choose_device
from likewise.core.errors import LikewiseError
from likewise.core.files import make_folder
from likewise.core.progress import bar
from likewise.core.render.tables import Table
from likewise.core.settings import Bench, check
from likewise.learn.training.loop import request_stop
from likewise.papers.benchmark_table import BenchmarkTable
from likewise.papers.executors import Executor, LocalExecutor, RayExecutor
from likewise.papers.grid import SEED_AXIS, Grid, as_train, cell_name, cells, chosen, read_grid, table_titles
from likewise.papers.grid_plan import GridPlan, PlannedRun, adapted_grid, adopt, has_roots, names, plan_grid
from likewise.runs.usage import cost

TABLE_SHARE = 0.05
"""Share of the budget that is kept for writing the table, up to `MAX_TABLE_SECONDS`."""

MAX_TABLE_SECONDS = 20.0


def bench(config: Bench, say=print) -> BenchmarkTable | Table:
    """Train all cells that are not finished, and return the table; with `list`, only list the trainings, or the tables."""
    check(config)
    if config.grid is None:
        return tables_of_papers(config)
    budget = Budget(config.budget)
    if config.budget is not None and config.executor:
        raise LikewiseError(
            "bench: --budget counts the minutes of this machine, got --executor as well; drop one of them"
        )
    grid = read_grid(config.grid)
    if grid.is_figure_only:
        return draw_alone(GridPlan(grid, Path(config.out or Path("bench") / grid.name).expanduser(), [], set()), config)
    if config.list and not has_roots(grid := adapted_grid(config)):
        return cells_of(grid, config)
    device = choose_device(config.device)
    executor = None if config.list else choose_executor(config, say)
    plan = plan_grid(config, say)
    runs, notes = adopt(plan.runs, config.adopt)
    plan = replace(plan, runs=runs, notes=tuple(notes))
    return planned(plan) if executor is None else run_grid(plan, config, executor, device, budget)


def choose_executor(config: Bench, say: Callable[[str], None] = print) -> Executor:
    """Return the executor that the settings of bench name: this machine, or the Ray cluster in `executor`."""
    if config.executor:
        return RayExecutor(config.executor, config.jobs, config.gpus_per_run)
    if config.gpus_per_run is not None:
        raise LikewiseError(
            f"bench: --gpus-per-run {config.gpus_per_run} needs a Ray cluster; add --executor ray, or drop --gpus-per-run"
        )
    return LocalExecutor(config.jobs, say)


def draw_alone(plan: GridPlan, config: Bench) -> BenchmarkTable | Table:
    """Return the page of a grid without trainings, and draw its figures; no data is read, and no device is used."""
    unused = ("data", "root", "set", "only", "executor", "metrics")
    if given := [f"--{flag}" for flag in unused if getattr(config, flag)]:
        raise LikewiseError(f"bench: '{plan.grid.name}' trains nothing, got {', '.join(given)}; leave it out")
    if config.list:
        return planned(plan)
    from likewise.papers.results_table import write_figures  # imported late, as in run_grid

    return write_figures(plan, config)


def tables_of_papers(config: Bench) -> Table:
    """Return the names and titles of all tables of papers; raises without `list`."""
    if not config.list:
        raise LikewiseError(
            "bench: TABLE_OR_GRID must be the name of a paper's table or a .toml file, got none; `likewise bench --list` lists "
            "the tables"
        )
    return Table("Tables and figures of papers", ["name", "title"], [[*one] for one in table_titles().items()])


def cells_of(grid: Grid, config: Bench) -> Table:
    """Return the chosen cells of a grid as a table, without states, for which the data would be read."""
    every = cells(grid)
    for cell in every:
        as_train(cell.settings)  # raises for settings that cannot work
    lines = [[str(place + 1), *every[place].names.values()] for place in chosen(every, config.only)]
    note = f"{len(lines)} of {len(every)} cells; add --root, the folder of the data, to see which are finished"
    return Table(grid.title, ["cell", *grid.axes], lines, [note])


def planned(plan: GridPlan) -> Table:
    """Return the planned trainings as a table."""
    grid, runs = plan.grid, [t for t in plan.runs if t.number - 1 in plan.chosen]
    columns = ["cell", *grid.axes, *(["fold"] if any(t.fold is not None for t in runs) else []), "state", "run"]
    lines = [[str(t.number), *names(t, columns), t.state, t.job.run.path.name] for t in runs]
    left = sum(not t.finished for t in runs)
    return Table(grid.title, columns, lines, [f"{left} of {len(runs)} trainings are not finished"], plan.folder)


def run_grid(
    plan: GridPlan, config: Bench, executor: Executor, device: torch.device, budget: Budget | None = None
) -> BenchmarkTable:
    """Train the chosen cells that are not finished, and return the table of all finished trainings; writes its files.

    A training that fails is listed with its error; the others continue. results.csv is also written after every training, so a
    killed bench leaves the records of its finished trainings.
    """
    budget, wanted = budget or Budget(None), plan.chosen if config.train else set()

    def save(runs: Sequence[PlannedRun]) -> None:
        from likewise.papers.results_table import write_results  # imported late: only the table needs its dependencies

        make_folder(plan.folder, "bench")
        write_results(plan.folder / "results.csv", in_table_order(runs), list(plan.grid.axes))

    runs = train_all(in_useful_order(plan), wanted, executor, config.quiet, budget, save)
    from likewise.papers.results_table import write_table

    notes = (*plan.notes, *next_call(runs, plan.chosen, budget))
    return write_table(replace(plan, runs=in_table_order(runs), notes=notes), config, device)


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
        places = [place_on(grid, axis, t) for axis in (SEED_AXIS, *grid.columns)]
        return (*places, min(named, default=len(grid.first)), t.number, t.fold or 0)

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
    hours = f"; at {budget.longest:.0f} s each, all need {budget.longest * len(left) / 60:.0f} minutes"
    return [
        f"The budget of {budget.minutes:g} minutes is used up, and {len(left)} trainings are left. The same command continues "
        f"with {cell_name(left[0].cell)}{hours if budget.longest > 0 else ''}."
    ]


class BudgetSpent(KeyboardInterrupt):
    """The budget ended during a training; its state is saved."""


class Budget:
    """Wall-clock budget of a bench: the longest training so far must fit in the rest of it, or no further training starts.

    Args:
        minutes: the budget of the whole command, from now; None: no limit.
        clock: returns seconds; tests replace it.
    """

    def __init__(self, minutes: float | None, clock: Callable[[], float] = time.monotonic):
        if minutes is not None and not 0 < minutes < float("inf"):
            raise LikewiseError(f"bench: --budget must be a number of minutes above 0, got {minutes:g}")
        self.minutes, self.clock, self.longest = minutes, clock, 0.0
        seconds = (minutes or 0.0) * 60
        self.reserve = min(TABLE_SHARE * seconds, MAX_TABLE_SECONDS)
        self.end = clock() + seconds - self.reserve

    def record(self, seconds: float) -> None:
        """Record the duration of a finished training."""
        self.longest = max(self.longest, seconds)

    def fits(self) -> bool:
        """Return whether another training can end within the budget; the first one always starts."""
        return self.minutes is None or self.clock() + self.longest < self.end

    def is_spent(self) -> bool:
        """Return whether the budget has ended."""
        return self.minutes is not None and self.clock() >= self.end

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """Stop the work inside this context at the end of the budget: a training saves its state first.

        An evaluation gets half of the time that is kept for the table, because without it a whole training would not count.
        Without alarms (on Windows, or outside of the main thread) a training that started runs to its end.
        """
        has_alarms = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if self.minutes is None or not has_alarms:
            yield
            return
        late = self.end + self.reserve / 2

        def stop(number: int, frame: object) -> None:
            """Ask a training in its loop to save and stop; elsewhere, such as during an evaluation, raise when it is late."""
            if request_stop():
                return
            if self.clock() >= late:
                raise BudgetSpent("the budget is used up")
            signal.setitimer(signal.ITIMER_REAL, max(late - self.clock(), 1e-3))

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - self.clock(), 1e-3))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
