"""The trainings of a grid: which are trained, and what their outcomes say."""

import pytest

from likewise.config import Train
from likewise.experiments.executors import LocalExecutor
from likewise.experiments.grid_run import train_all
from likewise.experiments.grid_types import Cell
from likewise.experiments.jobs import Job, PlannedRun
from likewise.experiments.worker import Outcome


class Recorded(LocalExecutor):
    """Trains nothing, the last config first; the training of dim 3 fails."""

    def __init__(self):
        super().__init__(1)
        self.dims = []

    def work(self, configs):
        for place, config in reversed(list(enumerate(configs))):
            self.dims.append(config.dim)
            yield place, Outcome("why" if config.dim == 3 else None)


@pytest.fixture
def plan(monkeypatch):
    """Four trainings, one a cell; the one of dim 2 is finished."""
    monkeypatch.setattr(Job, "state", property(lambda job: "finished" if job.config.dim == 2 else "new"))
    return [PlannedRun(dim, Cell({}, {}), None, Job(Train(data="x", dim=dim), str(dim))) for dim in (1, 2, 3, 4)]


def test_what_is_wanted_and_not_finished_is_trained(plan):
    executor = Recorded()
    runs = train_all(plan, {0, 1, 2}, executor, quiet=True)
    assert executor.dims == [3, 1]
    assert [run.error for run in runs] == [None, None, "why", None]
    assert [run.error for run in plan] == [None] * 4


def test_without_work_the_executor_is_not_entered(plan):
    class Forbidden(LocalExecutor):
        def __enter__(self):
            raise AssertionError("something is to be trained")

    assert train_all(plan, {1}, Forbidden(1), quiet=True) == plan
    assert train_all(plan, set(), Forbidden(1), quiet=True) == plan
