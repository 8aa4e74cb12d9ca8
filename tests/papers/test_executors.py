"""Executors: several trainings at once in child processes or on Ray; failures, kills, and a polite end."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from likewise.config import Bench, Train, to_dict
from likewise.errors import DiskFull, LikewiseError, OutOfMemory

from likewise.core.processes import Child, command, stop_all
from likewise.core.ray_cluster import in_root_folder
from likewise.papers import executors as module
from likewise.papers.bench import choose_executor
from likewise.papers.executors import (
    MAX_TRIES,
    Attempt,
    LocalExecutor,
    Outcome,
    RayExecutor,
    attempt,
    check_visible,
    cpus_for,
    gpus_for,
    missing,
    start_worker,
    train_on_node,
)
from likewise.papers.grid_plan import Planner
from likewise.runs.folder import Run
from likewise.runs.usage import cost, sessions

LONG = {"steps": 400, "checkpoint_every": "5", "log_every": 5}
"""Long enough to be killed on the way."""


def wait_until(holds, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def kill_on_the_way(run: Run) -> threading.Thread:
    """Kill whoever trains this run, once it has saved something and gone on."""

    def kill() -> None:
        wait_until(lambda: (run.path / "state.pt").exists() and len(run.read_log()) > 3)
        os.kill(json.loads((run.path / "lock").read_text())["pid"], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.fixture
def planner(tmp_path):
    return Planner(tmp_path / "my runs ü", print)


@pytest.fixture(scope="module")
def local():
    """Two children: loading torch twice is most of what they cost."""
    with LocalExecutor(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def ray():
    """A Ray of our own with two workers, whatever else runs on this machine. It takes some seconds to start."""
    pytest.importorskip("ray")
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = "local"
    try:
        with RayExecutor("ray", 2) as executor:
            yield executor
    finally:
        os.environ.pop("RAY_ADDRESS")
        os.environ |= {"RAY_ADDRESS": before} if before else {}


@pytest.fixture(params=["local", "ray"])
def executor(request):
    return request.getfixturevalue(request.param)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_training_is_taken_up_by_another_process(executor, planner, settings):
    """Four trainings, two at a time; the process of the second is killed."""
    jobs = [planner.job(Train(**settings | LONG | {"seed": seed})) for seed in range(4)]
    killer, ended, done = kill_on_the_way(jobs[1].run), [], {}
    for place, outcome in executor.work([job.config for job in jobs]):
        ended.append(place)
        assert outcome == Outcome()
        done[place] = (jobs[place].run.path / "done").stat().st_mtime_ns
    killer.join()
    assert sorted(ended) == [0, 1, 2, 3]  # none is lost, none is told twice
    for place, job in enumerate(jobs):
        assert job.state == "finished" and not (job.run.path / "lock").exists()
        assert (job.run.path / "done").stat().st_mtime_ns == done[place]
        assert [line["step"] for line in job.run.read_log()] == list(range(5, 401, 5))
        steps = [session["steps"] for session in sessions(job.run)]
        if place == 1:
            (first, saved), (goes_on, last) = steps
            assert first == 0 and 0 < saved <= goes_on < last == 400  # from its checkpoint, not from the start
        else:
            assert steps == [[0, 400]]
        assert cost(job.run)["train_seconds"] > 0 and cost(job.run)["evaluate_seconds"] > 0
    alone = replace(jobs[1].config, out=str(planner.folder / "alone"))
    assert attempt(alone) == (None, False, False)
    assert Run(alone.out).scores == jobs[1].run.scores
    assert (Run(alone.out).path / "model.safetensors").read_bytes() == (
        jobs[1].run.path / "model.safetensors"
    ).read_bytes()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_wish_to_stop_is_heard(executor, planner, settings):
    """Ctrl-C while two of three train: what they learned is saved, and the third is not begun."""
    jobs = [planner.job(Train(**settings | {"steps": 1000000, "seed": seed})) for seed in (0, 1, 2)]

    def interrupt() -> None:
        try:
            wait_until(lambda: all(len(job.run.read_log()) > 2 for job in jobs[:2]))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt, match="run the same command again to resume"):
        list(executor.work([job.config for job in jobs]))
    for job in jobs[:2]:
        assert job.state == "unfinished"
        assert not (job.run.path / "lock").exists()
        last = job.run.load_state()["step"]
        assert last >= 30
        assert job.run.read_log()[-1]["step"] in range(last - 9, last + 1)  # saved when asked to, nothing is lost
    assert jobs[2].state == "new"


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


def test_children_train_side_by_side_and_one_failure_stops_nobody(planner, settings, local):
    jobs = [planner.job(Train(**settings | change)) for change in ({}, {"lr": 1e30}, {"seed": 1})]
    found = dict(local.work([job.config for job in jobs]))
    assert found[0] == found[2] == Outcome()
    assert "z must be unit vectors" in found[1].error
    assert not found[1].crashed
    assert [job.state for job in jobs] == ["finished", "unfinished", "finished"]
    here = replace(jobs[0].config, out=str(planner.folder / "here"))
    assert attempt(here) == (None, False, False)
    assert Run(here.out).scores["metrics"] == jobs[0].run.scores["metrics"]  # a child is no other place


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
def test_a_child_may_start_processes_that_read_pictures(planner, local):
    """It listens to its parent while it works; a process forked from it must not wait for what the listener holds."""
    settings = {
        "data": "glyphs(classes=6, per_class=4, size=16)", "size": 16, "dim": 8, "steps": 2, "workers": 1, "device": "cpu",
        "sampler": "SamplesPerClass(batch=4, per_class=2)", "evaluate": False,
    }  # fmt: skip
    job = planner.job(Train(**settings))
    assert dict(local.work([job.config])) == {0: Outcome()} and job.run.done


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


@pytest.mark.slow
@pytest.mark.process
def test_a_bad_setting_is_no_accident(ray, planner, settings, monkeypatch):
    """It is told once; and nodes are asked first whether they see the folder."""
    monkeypatch.setattr(ray, "here_only", False)
    jobs = [planner.job(Train(**settings | change)) for change in ({"lr": 1e30}, {})]
    found = dict(ray.work([job.config for job in jobs]))
    assert "z must be unit vectors" in found[0].error and not found[0].crashed
    assert found[1] == Outcome()
    assert not list(planner.folder.glob(".seen-*"))


def fake_ray(answers: list):
    """A Ray whose tasks end at once, with these answers one after another."""

    class WorkerCrashedError(Exception):
        pass

    def ask(task):
        answer = answers.pop(0)
        if isinstance(answer, str):
            raise WorkerCrashedError(answer)
        return answer

    def remote(**how):
        asked.append(how)
        return lambda work: SimpleNamespace(remote=lambda *arguments: object())

    asked = []
    return SimpleNamespace(
        asked=asked, remote=remote, get=ask, wait=lambda tasks, **_: (tasks[:1], tasks[1:]), cancel=None,
        nodes=lambda: [{"Alive": True, "Resources": {"CPU": 32, "GPU": 4}}], is_initialized=lambda: True,
        exceptions=SimpleNamespace(RayError=WorkerCrashedError),
    )  # fmt: skip


@pytest.mark.parametrize(("deaths", "outcome"), [
    (4, Outcome()),
    (5, Outcome("the process that trained it was lost 5 times (WorkerCrashedError: killed)", True)),
])  # fmt: skip
def test_what_is_lost_too_often_has_crashed(deaths, outcome, settings, monkeypatch):
    fake = fake_ray([*["killed"] * deaths, (None, False, False)])
    monkeypatch.setitem(sys.modules, "ray", fake)
    with RayExecutor("ray", gpus_per_run=0.25) as executor:
        executor.here_only = True
        assert list(executor.work([Train(**settings)])) == [(0, outcome)]
    assert fake.asked == [{"num_gpus": 0.25, "num_cpus": 2, "max_retries": 0, "max_calls": 1}]


def test_who_cannot_wait_kills():
    asked = []

    def wait(tasks, **_):
        raise KeyboardInterrupt

    executor = RayExecutor("ray")
    executor.ray = SimpleNamespace(cancel=lambda task, force=False: asked.append((task, force)), wait=wait)
    with pytest.raises(KeyboardInterrupt):
        executor.end(["a", "b"])
    assert asked == [("a", False), ("b", False), ("a", True), ("b", True)]


@pytest.mark.parametrize(
    ("device", "each", "jobs", "nodes", "gpus", "cpus"),
    [
        (None, None, 1, [{"CPU": 8.0}, {"CPU": 4.0}], 0, 1),
        (None, None, 3, [{"CPU": 8.0}, {"CPU": 4.0}], 0, 4),
        (None, None, 2, [{"CPU": 8.0}, {"CPU": 4.0}], 0, 4),  # no more than the smaller one has
        (None, None, 1, [{"CPU": 4.0}, {"CPU": 64.0, "GPU": 8.0}], 1, 8),
        ("cpu", None, 1, [{"CPU": 64.0, "GPU": 8.0}], 0, 1),
        (None, 0.25, 1, [{"CPU": 64.0, "GPU": 8.0}, {"CPU": 16.0, "GPU": 8.0}], 0.25, 1),
        ("cuda", 4.0, 1, [{"CPU": 64.0, "GPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}], 4, 32),
    ],
)
def test_a_training_gets_its_share_of_a_node(device, each, jobs, nodes, gpus, cpus):
    assert gpus_for(Train(data="x", device=device), each, nodes) == gpus
    assert cpus_for(gpus, jobs, nodes) == cpus


def test_what_nobody_has_is_not_waited_for():
    with pytest.raises(LikewiseError, match="needs 2 GPUs, but .* more than 1"):
        gpus_for(Train(data="x"), 2, [{"CPU": 4.0, "GPU": 1.0}])


def test_a_folder_that_a_node_does_not_see_is_named(tmp_path):
    mark = tmp_path / "runs" / ".seen-1"
    host, gone = missing([str(tmp_path), str(mark)])
    assert gone == [str(mark)]
    with pytest.raises(LikewiseError, match=rf"{host} does not see '{tmp_path / 'runs'}'; use a working"):
        check_visible([("other", []), (host, gone)], mark)
    with pytest.raises(LikewiseError, match="node-7 does not see '/home/me'"):
        check_visible([("node-7", ["/home/me", str(mark)])], mark)
    mark.parent.mkdir()
    mark.touch()
    check_visible([missing([str(Path.cwd()), str(mark)])], mark)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"executor": "rays"}, '--executor must be "ray" or "ray://HOST:PORT", got "rays"'),
        ({"executor": "ray", "gpus_per_run": 1.5}, "a fraction of a GPU or a whole number of GPUs, got 1.5"),
        ({"executor": "ray", "gpus_per_run": -1.0}, "a fraction of a GPU or a whole number of GPUs, got -1"),
        ({"executor": "ray", "jobs": 0}, "jobs must be 1 or more, got 0"),
        ({"gpus_per_run": 0.5}, "--gpus-per-run 0.5 needs a Ray cluster; add --executor ray"),
        ({"jobs": 0}, "jobs must be 1 or more, got 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, words):
    with pytest.raises(LikewiseError) as error:
        choose_executor(Bench("grid.toml", **settings))
    assert words in str(error.value)


def test_the_executor_of_bench():
    assert isinstance(choose_executor(Bench("grid.toml", jobs=3)), LocalExecutor)
    ray = choose_executor(Bench("grid.toml", executor="ray://head:10001", jobs=3, gpus_per_run=0.5))
    assert (ray.address, ray.jobs, ray.gpus_per_run) == ("ray://head:10001", 3, 0.5)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(LikewiseError, match=r"needs Ray, which is not installed; .*pip install 'likewise\[ray\]'"),
        RayExecutor("ray"),
    ):
        pass


def test_workers_import_nothing_from_the_folder_that_ray_is_started_in(monkeypatch, tmp_path):
    """Ray hands that folder on; a user's own modules are found where we find them, after all others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"own{os.pathsep}/other")
    with in_root_folder():
        assert Path.cwd() == Path(tmp_path.anchor)
        assert os.environ["PYTHONPATH"] == f"{tmp_path / 'own'}{os.pathsep}/other"
    assert Path.cwd() == tmp_path and os.environ["PYTHONPATH"] == f"own{os.pathsep}/other"
    monkeypatch.setattr(sys, "path", ["/lib"])
    monkeypatch.setattr(module, "attempt", lambda config: Attempt())
    train_on_node(str(tmp_path), ["", "/lib", "/own"], Train(data="x"))
    assert sys.path == ["/lib", str(tmp_path), "/own"]
