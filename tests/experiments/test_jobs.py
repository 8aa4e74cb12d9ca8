"""Many trainings: the runs they belong to, several at once, failures, and a polite end."""

import json
import os
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from experiments.executor_work import check_that_a_kill_loses_nothing, check_that_a_wish_to_stop_is_heard

from likewise.config import Train, to_dict
from likewise.errors import DiskFull, LikewiseError, OutOfMemory
from likewise.experiments import jobs as many
from likewise.experiments.jobs import Child, Crew, Outcome, Planner, attempt
from likewise.io.processes import command
from likewise.runs.folder import Run


@pytest.fixture
def planner(tmp_path):
    return Planner(tmp_path / "my runs ü", print)


def test_a_job_is_the_run_of_its_settings(planner, settings):
    first, again = planner.job(Train(**settings)), planner.job(Train(**settings | {"loss": "MultiSimilarity(alpha=2)"}))
    other = planner.job(Train(**settings | {"seed": 1}))
    assert first == again
    assert other.identity != first.identity
    assert first.run.path.parent == planner.folder
    assert first.run.path.name == f"toy-MultiSimilarity-{first.identity[:8]}"
    assert first.config.out == str(first.run.path)
    assert first.state == "new"
    assert attempt(replace(first.config, evaluate=False)) == (None, False, False)
    assert first.run.about["identity"] == first.identity
    assert first.state == "unfinished"  # trained, but not yet evaluated as asked
    assert replace(first, config=replace(first.config, evaluate=False)).state == "finished"
    assert attempt(first.config) == (None, False, False)
    assert first.state == "finished"
    assert replace(first, config=replace(first.config, metrics=("R@2",))).state == "unfinished"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"loss": "Triplet(margn=1)"}, "did you mean 'margin'"),
        ({"loss": "Triplet(margin=-1.0)"}, "Triplet: margin must be 0 or more"),
        ({"noise": "Uniform(shares=0.1)"}, "did you mean 'share'"),
        ({"length": "soon"}, "length is a number of steps"),
        ({"metrics": ("R@1000",)}, "the metrics look at 1000 answers"),
        ({"protocol": "UnseenClass()"}, "did you mean 'UnseenClasses'"),
    ],
)
def test_what_cannot_work_is_refused_before_training(planner, settings, wrong, words):
    with pytest.raises(LikewiseError) as error:
        planner.job(Train(**settings | wrong))
    assert words in str(error.value)
    assert not planner.folder.exists()


def test_failures_come_with_their_reason(planner, settings, monkeypatch):
    diverged = planner.job(Train(**settings | {"lr": 1e30}))
    error, crashed, leaves = attempt(diverged.config)
    assert "z must be unit vectors" in error
    assert (crashed, leaves) == (False, False)

    def broken(*_, **__):
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(many, "train", broken)
    assert attempt(diverged.config) == ("ZeroDivisionError: a fault of ours", True, True)


def test_what_runs_out_is_told_by_its_kind(settings, monkeypatch):
    """Of memory: the settings are to blame, and the process ends. Of disk: they are not."""
    for error, found in (
        (OutOfMemory("train: memory is exhausted"), ("train: memory is exhausted", False, True)),
        (DiskFull("run: no room"), ("run: no room", True, False)),
        (LikewiseError("there is no room left"), ("there is no room left", False, False)),
    ):
        monkeypatch.setattr(many, "train", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
        assert attempt(Train(**settings)) == found


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_suspended_child_is_told_once_and_ends_when_asked_to(settings, monkeypatch):
    child, said = Child(2), []
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    with Crew(2, said.append) as crew:
        crew._busy.add(child)
        crew._report_stopped()
        crew._report_stopped()
        assert said == [f"process {child.pid}, which trains, is stopped: `kill -CONT {child.pid}` lets it go on, "
                        f"`kill -KILL {child.pid}` has another process take its training up"]  # fmt: skip
    many._end([child])
    assert child.returncode is not None


def test_a_run_that_another_trains_is_waited_for(planner, settings, monkeypatch):
    job, waits = planner.job(Train(**settings)), []
    owner = job.run.owned()
    owner.__enter__()

    def wait(seconds):
        waits.append(seconds)
        owner.__exit__(None, None, None)

    monkeypatch.setattr(many, "time", SimpleNamespace(sleep=wait))
    assert attempt(job.config) == (None, False, False)
    assert len(waits) == 1
    assert job.state == "finished"


def test_a_crew_needs_somebody():
    with pytest.raises(LikewiseError, match="jobs must be 1 or more, got 0"):
        Crew(0)


@pytest.fixture(scope="module")
def crew():
    """Two children: loading torch twice is most of what they cost."""
    with Crew(2) as crew:
        yield crew


def test_children_train_side_by_side_and_one_failure_stops_nobody(planner, settings, crew):
    jobs = [planner.job(Train(**settings | change)) for change in ({}, {"lr": 1e30}, {"seed": 1})]
    found = dict(crew.work([job.config for job in jobs]))
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
def test_children_stop_politely_and_leave_runs_that_go_on(planner, settings, crew):
    check_that_a_wish_to_stop_is_heard(crew, planner, settings)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_training_is_taken_up_by_another_process(planner, settings, crew):
    check_that_a_kill_loses_nothing(crew, planner, settings)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_what_kills_its_process_every_time_has_crashed(settings, monkeypatch):
    asked = []

    def die(child, config):
        asked.append(child)
        child.kill()
        return child.last_words(), True, True

    monkeypatch.setattr(Child, "ask", die)
    with Crew(2) as crew:
        ((_, outcome),) = crew.work([Train(**settings)])
    assert outcome.crashed and outcome.error.startswith("the process ended with code -9")
    assert len(set(asked)) == many.TRIES == 3


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_child_that_dies_is_a_crash_with_its_last_words():
    child = Child(2)
    child.kill()
    assert child.args == command("likewise.experiments.jobs:serve")  # nothing of the current folder
    error, crashed, leaves = child.ask(Train(data="x"))
    assert error.startswith("the process ended with code -9")
    assert crashed and leaves


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_child_hears_although_its_parent_was_started_deaf(planner, settings):
    job = planner.job(Train(**settings | {"length": "1000000"}))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what it puts into the background
    try:
        child = Child(2)
    finally:
        signal.signal(signal.SIGINT, before)
    child.stdin.write(json.dumps(to_dict(job.config)) + "\n")
    child.stdin.close()
    try:
        assert child.wait(600) == 0
    finally:
        child.kill()


@pytest.mark.slow
@pytest.mark.process
def test_a_child_may_start_processes_that_read_pictures(planner, crew):
    """It listens to its parent while it works; a process forked from it must not wait for what the listener holds."""
    settings = {
        "data": "glyphs(classes=6, per_class=4, size=16)", "size": 16, "dim": 8, "length": "2", "workers": 1, "device": "cpu",
        "sampler": "SamplesPerClass(batch=4, per_class=2)", "evaluate": False,
    }  # fmt: skip
    job = planner.job(Train(**settings))
    assert dict(crew.work([job.config])) == {0: Outcome()} and job.run.done
