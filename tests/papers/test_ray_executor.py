"""Trainings on Ray: a killed one is taken up by another process, a wish to stop is heard, and bad places are named."""

import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from likewise.config import Bench, Train
from likewise.errors import LikewiseError
from papers.executor_work import check_that_a_kill_loses_nothing, check_that_a_wish_to_stop_is_heard

from likewise.papers import ray_executor as module
from likewise.papers.bench import choose_executor
from likewise.papers.executors import Attempt, Outcome
from likewise.papers.grid_plan import Planner
from likewise.papers.ray_executor import (
    RayExecutor,
    check_visible,
    connect,
    cpus_for,
    gpus_for,
    in_root_folder,
    missing,
    train_on_node,
)


@pytest.fixture
def planner(tmp_path):
    return Planner(tmp_path / "my runs ü", print)


@pytest.fixture(scope="module")
def executor():
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


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_training_is_taken_up_by_another_process(executor, planner, settings):
    check_that_a_kill_loses_nothing(executor, planner, settings)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_wish_to_stop_is_heard(executor, planner, settings):
    check_that_a_wish_to_stop_is_heard(executor, planner, settings)


@pytest.mark.slow
@pytest.mark.process
def test_a_bad_setting_is_no_accident(executor, planner, settings, monkeypatch):
    """It is told once; and nodes are asked first whether they see the folder."""
    monkeypatch.setattr(executor, "here_only", False)
    jobs = [planner.job(Train(**settings | change)) for change in ({"lr": 1e30}, {})]
    found = dict(executor.work([job.config for job in jobs]))
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
    with pytest.raises(LikewiseError, match="needs 2 GPUs, but no node of the Ray cluster has more than 1"):
        gpus_for(Train(data="x"), 2, [{"CPU": 4.0, "GPU": 1.0}])


def test_a_folder_that_a_node_does_not_see_is_named(tmp_path):
    mark = tmp_path / "runs" / ".seen-1"
    host, gone = missing([str(tmp_path), str(mark)])
    assert gone == [str(mark)]
    with pytest.raises(
        LikewiseError, match=rf"all nodes share, but {host} does not see '{tmp_path / 'runs'}'; use a working directory"
    ):
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
    ],
)
def test_what_cannot_be_meant_is_refused(settings, words):
    with pytest.raises(LikewiseError) as error:
        choose_executor(Bench("grid.toml", **settings))
    assert words in str(error.value)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(LikewiseError, match=r'needs Ray, which is not installed; pip install "likewise\[ray\]"'),
        RayExecutor("ray"),
    ):
        pass


def recorded(monkeypatch, folder):
    """A Ray that only writes down how it was started, where /tmp is this folder."""
    started = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    monkeypatch.setenv("PYTHONPATH", "here")
    return SimpleNamespace(init=lambda **how: started.append(how), started=started)


def test_a_cluster_that_does_not_answer_is_not_replaced_by_another(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    fake = recorded(monkeypatch, tmp_path)
    for address, variable in ((f"ray://127.0.0.1:{port}", ""), ("ray", f"127.0.0.1:{port}")):
        monkeypatch.setenv("RAY_ADDRESS", variable)
        with pytest.raises(
            LikewiseError, match=rf"no Ray cluster answers at '\S*127.0.0.1:{port}' \(Connection.*; start it"
        ):
            connect(fake, address, 1)
    assert fake.started == []


def test_a_cluster_that_answers_is_used_and_learns_where_our_code_is(monkeypatch, tmp_path):
    fake, path = recorded(monkeypatch, tmp_path), str(Path("here").absolute())
    (tmp_path / "ray").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        assert connect(fake, f"ray://{there}", 1) is False
        (tmp_path / "ray" / "ray_current_cluster").write_text(there)
        assert connect(fake, "ray", 1) is False
    assert [how["address"] for how in fake.started] == [f"ray://{there}", "auto"]
    assert all(how["runtime_env"] == {"env_vars": {"PYTHONPATH": path}} for how in fake.started)
    assert connect(fake, "ray", 5) is True  # nobody answers there any more
    assert fake.started[2]["address"] == "local" and fake.started[2]["num_cpus"] >= 5


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


def test_a_ray_that_does_not_start_is_tried_again(monkeypatch, tmp_path):
    fake, tried = recorded(monkeypatch, tmp_path), []

    def init(**how):
        tried.append(how)
        raise TimeoutError("the raylet did not come up")

    fake.init, fake.shutdown = init, lambda: None
    with pytest.raises(LikewiseError, match="Ray does not start here .the raylet did not come up.; use --jobs"):
        connect(fake, "ray", 1)
    assert len(tried) == 3
