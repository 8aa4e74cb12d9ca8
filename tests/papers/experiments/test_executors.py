"""Executors: several trainings at once in child processes, failures, and a polite end."""

import os
import signal
import sys
from dataclasses import replace

import pytest
from likewise.config import Bench, Train
from likewise.errors import LikewiseError
from papers.experiments.executor_work import check_that_a_kill_loses_nothing, check_that_a_wish_to_stop_is_heard

from likewise.core.processes import command
from likewise.core.supervisor import Child, stop_all
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
