"""The trainings of a grid: which are trained, and what their outcomes say."""

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from likewise.config import Bench, Train
from likewise.errors import LikewiseError

from likewise.learn.training.loop import stop_on_signal
from likewise.papers.bench import Budget, BudgetSpent, in_useful_order, next_call, run_grid, train_all
from likewise.papers.benchmark_table import BenchmarkTable
from likewise.papers.executors import LocalExecutor, Outcome
from likewise.papers.grid import Cell, Grid, Point
from likewise.papers.grid_plan import GridPlan, Job, PlannedRun


class Recorded(LocalExecutor):
    """Trains nothing, the last config first; the training of dim 3 fails."""

    def __init__(self):
        super().__init__(1)
        self.dims = []

    def work(self, configs, more=None):
        for place, config in reversed(list(enumerate(configs))):
            self.dims.append(config.dim)
            yield place, Outcome("why" if config.dim == 3 else None)


@pytest.fixture
def plan(monkeypatch):
    """Four trainings, one a cell; the one of dim 2 is finished."""
    monkeypatch.setattr(Job, "state", property(lambda job: "finished" if job.config.dim == 2 else "new"))
    return [
        PlannedRun(dim, Cell({}, {}), None, Job(Train(data="x", dim=dim, out=f"nowhere/{dim}"), str(dim)))
        for dim in (1, 2, 3, 4)
    ]


def test_what_is_wanted_and_not_finished_is_trained(plan):
    executor = Recorded()
    runs = train_all(plan, {0, 1, 2}, executor, quiet=True, budget=Budget(None))
    assert executor.dims == [3, 1]
    assert [run.error for run in runs] == [None, None, "why", None]
    assert [run.error for run in plan] == [None] * 4


def test_results_are_written_after_every_training(plan, tmp_path, monkeypatch):
    seen, folder = [], tmp_path / "table"
    monkeypatch.setattr("likewise.papers.results_table.provenance", lambda t: {})
    sheet = BenchmarkTable("x", "x", (), ())
    monkeypatch.setattr("likewise.papers.results_table.write_table", lambda *given: sheet)

    class Reading(Recorded):
        def work(self, configs, more=None):
            for found in super().work(configs):
                yield found
                seen.append((folder / "results.csv").read_text().splitlines())

    runs = [replace(run, job=replace(run.job, config=replace(run.job.config, metrics=()))) for run in plan]
    run_grid(
        GridPlan(Grid("", {}, {}, {}), folder, runs[2:], {2, 3}), Bench("x", quiet=True), Reading(), torch.device("cpu")
    )
    assert seen == [["cell,fold,status", "3,,new", "4,,new"], ["cell,fold,status", "3,,failed: why", "4,,new"]]


def test_without_work_the_executor_is_not_entered(plan):
    class Forbidden(LocalExecutor):
        def __enter__(self):
            raise AssertionError("something is to be trained")

    assert train_all(plan, {1}, Forbidden(1), quiet=True, budget=Budget(None)) == plan
    assert train_all(plan, set(), Forbidden(1), quiet=True, budget=Budget(None)) == plan


def test_every_row_is_trained_once_before_any_row_twice():
    axes = {
        axis: [Point(name, {}) for name in names]
        for axis, names in {"method": "abc", "noise": "nu", "seed": "01"}.items()
    }
    grid = Grid("", {}, axes, {}, columns=("noise",), first=("c",))
    cells = [{"method": m, "noise": n, "seed": s} for m in "abc" for n in "nu" for s in "01"]
    runs = [PlannedRun(i, Cell(names, {}), None, Job(Train(data="x"), "")) for i, names in enumerate(cells, 1)]
    order = ["".join(t.cell.names.values()) for t in in_useful_order(GridPlan(grid, Path("table"), runs, set()))]
    assert order == ["cn0", "an0", "bn0", "cu0", "au0", "bu0", "cn1", "an1", "bn1", "cu1", "au1", "bu1"]


def test_a_spent_budget_keeps_what_is_trained_and_names_the_next(plan, monkeypatch):
    monkeypatch.setattr("likewise.papers.bench.duration", lambda t: 50.0 if t.finished else 0.0)
    now = [0.0]

    class Slow(LocalExecutor):
        def work(self, configs, more):
            for place, _ in enumerate(configs):
                if not more():
                    return
                now[0] += 50
                yield place, Outcome()

    budget = Budget(2, clock=lambda: now[0])  # ends at 114
    runs = train_all(plan, {0, 1, 2, 3}, Slow(1), quiet=True, budget=budget)
    assert now == [100.0]
    (note,) = next_call(runs, {0, 1, 2, 3}, budget)
    assert note.startswith("The budget of 2 minutes is used up") and "at 50 s each" in note


def test_an_interrupt_before_the_end_of_the_budget_is_raised(plan):
    class Stopped(LocalExecutor):
        def work(self, configs, more):
            raise KeyboardInterrupt
            yield

    with pytest.raises(KeyboardInterrupt):
        train_all(plan, {0}, Stopped(1), quiet=True, budget=Budget(10))
    train_all(plan, {0}, Stopped(1), quiet=True, budget=Budget(1, clock=iter([0.0, *[1e6] * 9]).__next__))


def test_a_training_starts_only_if_the_longest_so_far_fits():
    now = [100.0]
    budget = Budget(10, clock=lambda: now[0])  # 600 s, of which 20 s are for the table: the end is at 680
    assert budget.end == 680 and budget.fits()
    budget.record(60)
    budget.record(30)
    now[0] = 619
    assert budget.fits() and not budget.is_spent()
    now[0] = 620
    assert not budget.fits() and not budget.is_spent()
    now[0] = 680
    assert budget.is_spent()


def test_a_budget_is_none_or_positive_and_a_short_one_keeps_a_twentieth_for_the_table():
    assert Budget(1, clock=lambda: 0.0).end == 57
    budget = Budget(None)
    budget.record(1e9)
    assert budget.fits() and not budget.is_spent()
    for minutes in (0, -1, float("nan"), float("inf")):
        with pytest.raises(LikewiseError, match="above 0"):
            Budget(minutes)


def test_an_evaluation_under_way_gets_half_of_the_time_for_the_table(monkeypatch):
    monkeypatch.setattr("likewise.papers.bench.TABLE_SHARE", 0.95)
    budget = Budget(0.1)  # 6 s: the end is after 0.3 s, and an evaluation may take 2.85 s more
    with budget.alarm():
        while not budget.is_spent():
            time.sleep(0.01)
        time.sleep(0.1)
    assert budget.is_spent()


def test_the_alarm_raises_outside_of_a_training_and_leaves_no_timer():
    """Whatever handlers other libraries leave: that of Ray for SIGTERM exits the process."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
    try:
        with pytest.raises(BudgetSpent), Budget(0.001).alarm():
            time.sleep(30)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_alarm_asks_a_training_to_save():
    with Budget(0.001).alarm(), stop_on_signal() as stop:
        assert stop.wait(30)
