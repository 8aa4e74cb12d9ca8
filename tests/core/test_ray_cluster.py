"""Connecting to Ray: a cluster that answers, one that does not, and a local one."""

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from likewise.errors import LikewiseError

from likewise.core.ray_cluster import connect

HOW = {"who": "bench", "instead": "use --jobs"}


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
            LikewiseError, match=rf"^bench: .*'\S*127.0.0.1:{port}' \(Connection.*; start it.* or use --jobs$"
        ):
            connect(fake, address, **HOW)
    assert fake.started == []


def test_a_cluster_that_answers_is_used_and_learns_where_our_code_is(monkeypatch, tmp_path):
    fake, path = recorded(monkeypatch, tmp_path), str(Path("here").absolute())
    (tmp_path / "ray").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        assert connect(fake, f"ray://{there}", **HOW) is False
        (tmp_path / "ray" / "ray_current_cluster").write_text(there)
        assert connect(fake, "ray", **HOW) is False
    assert [how["address"] for how in fake.started] == [f"ray://{there}", "auto"]
    assert all(how["runtime_env"] == {"env_vars": {"PYTHONPATH": path}} for how in fake.started)
    assert connect(fake, "ray", **HOW, cpus=5) is True  # nobody answers there any more
    assert fake.started[2]["address"] == "local" and fake.started[2]["num_cpus"] >= 5


@pytest.mark.parametrize("failures", [0, 2, 5])
def test_a_client_server_whose_process_ended_is_tried_again(monkeypatch, tmp_path, failures):
    fake = recorded(monkeypatch, tmp_path)

    def init(**how):
        fake.started.append(how["address"])
        if len(fake.started) <= failures:
            raise ConnectionAbortedError("failure from server:\nTraceback\nRuntimeError: see ray_client_server.err\n")

    fake.init = init
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"ray://127.0.0.1:{server.getsockname()[1]}"
        if failures < 5:
            assert connect(fake, there, **HOW) is False and fake.started == [there] * (failures + 1)
            return
        with pytest.raises(LikewiseError, match=r"\(ConnectionAbortedError: RuntimeError: see ray_client_server.err\)"):
            connect(fake, there, **HOW)
    assert fake.started == [there] * 5


def test_a_ray_that_does_not_start_is_tried_again(monkeypatch, tmp_path):
    fake, tried = recorded(monkeypatch, tmp_path), []

    def init(**how):
        tried.append(how)
        raise TimeoutError("the raylet did not come up")

    fake.init, fake.shutdown = init, lambda: None
    with pytest.raises(LikewiseError, match="the raylet did not come up.; use --jobs$"):
        connect(fake, "ray", **HOW)
    assert len(tried) == 3
