"""Executors: several trainings at once in child processes, failures, and a polite end."""

import json
import os
import signal
import sys
from dataclasses import replace

import pytest
from likewise.config import Bench, Train, to_dict
from likewise.errors import DiskFull, LikewiseError, OutOfMemory
from papers.executor_work import check_that_a_kill_loses_nothing, check_that_a_wish_to_stop_is_heard

from likewise.core.processes import Child, command, stop_all
from likewise.papers.bench import choose_executor
from likewise.papers.executors import MAX_TRIES, LocalExecutor, Outcome, attempt, start_worker
from likewise.papers.grid_plan import Planner
from likewise.runs.folder import Run


@pytest.fixture
def planner(tmp_path):
    return Planner(tmp_path / "my runs ü", print)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_suspended_child_is_told_once_and_ends_when_asked_to(settings, monkeypatch):
    child, said = start_worker(2), []
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    with LocalExecutor(2, said.append) as executor:
        executor._busy.add(child)
        executor._report_suspended()
        executor._report_suspended()
        assert said == [f"training process {child.pid} is suspended: `kill -CONT {child.pid}` continues it, "
                        f"`kill -KILL {child.pid}` makes another process resume its training"]  # fmt: skip
    stop_all([child])
    assert child.returncode is not None


def test_an_executor_runs_one_job_or_more():
    with pytest.raises(LikewiseError, match="jobs must be 1 or more, got 0"):
        LocalExecutor(0)


@pytest.fixture(scope="module")
def executor():
    """Two children: loading torch twice is most of what they cost."""
    with LocalExecutor(2) as executor:
        yield executor


def test_children_train_side_by_side_and_one_failure_stops_nobody(planner, settings, executor):
    jobs = [planner.job(Train(**settings | change)) for change in ({}, {"lr": 1e30}, {"seed": 1})]
    found = dict(executor.work([job.config for job in jobs]))
    assert found[0] == found[2] == Outcome()
    assert "z must be unit vectors" in found[1].error
    assert not found[1].crashed
    assert [job.state for job in jobs] == ["finished", "unfinished", "finished"]
    here = replace(jobs[0].config, out=str(planner.folder / "here"))
    assert attempt(here) == (None, False, False)
    assert Run(here.out).scores["metrics"] == jobs[0].run.scores["metrics"]  # a child is no other place


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_children_stop_politely_and_leave_runs_that_go_on(planner, settings, executor):
    check_that_a_wish_to_stop_is_heard(executor, planner, settings)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_training_is_taken_up_by_another_process(planner, settings, executor):
    check_that_a_kill_loses_nothing(executor, planner, settings)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_what_kills_its_process_every_time_has_crashed(settings, monkeypatch):
    asked = []

    def die(child, line):
        asked.append(child)
        child.kill()
        child.wait()
        return ""

    monkeypatch.setattr(Child, "ask", die)
    with LocalExecutor(2) as executor:
        ((_, outcome),) = executor.work([Train(**settings)])
    assert outcome.crashed and outcome.error.startswith("the process ended with code -9")
    assert len(set(asked)) == MAX_TRIES == 3


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_worker_imports_nothing_from_the_current_folder():
    child = start_worker(2)
    child.kill()
    assert child.args == command("likewise.papers.executors:serve")
    assert child.ask("{}") == "" and child.exit_summary().startswith("the process ended with code -9")


@pytest.mark.slow
@pytest.mark.process
def test_a_child_may_start_processes_that_read_pictures(planner, executor):
    """It listens to its parent while it works; a process forked from it must not wait for what the listener holds."""
    settings = {
        "data": "glyphs(classes=6, per_class=4, size=16)", "size": 16, "dim": 8, "steps": 2, "workers": 1, "device": "cpu",
        "sampler": "SamplesPerClass(batch=4, per_class=2)", "evaluate": False,
    }  # fmt: skip
    job = planner.job(Train(**settings))
    assert dict(executor.work([job.config])) == {0: Outcome()} and job.run.done


def test_the_executor_of_bench():
    assert isinstance(choose_executor(Bench("grid.toml", jobs=3)), LocalExecutor)
    ray = choose_executor(Bench("grid.toml", executor="ray://head:10001", jobs=3, gpus_per_run=0.5))
    assert (ray.address, ray.jobs, ray.gpus_per_run) == ("ray://head:10001", 3, 0.5)


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
