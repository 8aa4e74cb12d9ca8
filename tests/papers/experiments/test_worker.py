"""One training as a job: how it ended, in this process and in one that serves."""

import json
import os
import signal

import pytest
from likewise.config import Train, to_dict
from likewise.errors import DiskFull, LikewiseError, OutOfMemory

from likewise.papers.executors import attempt, start_worker
from likewise.papers.grid_plan import Planner


@pytest.fixture
def planner(tmp_path):
    return Planner(tmp_path / "my runs ü", print)


def raising(error):
    def train(config, say):
        raise error

    return train


def test_failures_come_with_their_reason(planner, settings):
    diverged = planner.job(Train(**settings | {"lr": 1e30}))
    error, crashed, spent = attempt(diverged.config)
    assert "z must be unit vectors" in error
    assert (crashed, spent) == (False, False)
    broken = raising(ZeroDivisionError("a fault of ours"))
    assert attempt(diverged.config, broken) == ("ZeroDivisionError: a fault of ours", True, True)


def test_what_runs_out_is_told_by_its_kind(settings):
    """Of memory: the settings are to blame, and the process ends. Of disk: they are not."""
    for error, found in (
        (OutOfMemory("train: memory is exhausted"), ("train: memory is exhausted", False, True)),
        (DiskFull("run: no room"), ("run: no room", True, False)),
        (LikewiseError("there is no room left"), ("there is no room left", False, False)),
    ):
        assert attempt(Train(**settings), raising(error)) == found


def test_a_run_that_another_trains_is_waited_for(planner, settings):
    job, syncs = planner.job(Train(**settings)), []
    owner = job.run.owned()
    owner.__enter__()

    def wait(seconds):
        syncs.append(seconds)
        owner.__exit__(None, None, None)

    assert attempt(job.config, wait=wait) == (None, False, False)
    assert len(syncs) == 1
    assert job.state == "finished"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_child_hears_although_its_parent_was_started_deaf(planner, settings):
    job = planner.job(Train(**settings | {"steps": 1000000}))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what it puts into the background
    try:
        child = start_worker(2)
    finally:
        signal.signal(signal.SIGINT, before)
    child.stdin.write(json.dumps(to_dict(job.config)) + "\n")
    child.stdin.close()
    try:
        assert child.wait(600) == 0
    finally:
        child.kill()
