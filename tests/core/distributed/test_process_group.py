"""Several processes rank as one does, to the last row, and learn from one batch as one does."""

import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
from distribute_work import everything, start_all

from likewise.core.distributed.collectives import world
from likewise.core.distributed.process_group import PeerLost, peer_errors

pytestmark = pytest.mark.process


def test_alone_is_one_of_one():
    assert world() == (0, 1) and not dist.is_initialized()


def test_errors_about_a_lost_connection_are_of_one_type():
    lost = RuntimeError("[../gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]:1")
    for error in (lost, dist.DistBackendError("NCCL error")):
        with pytest.raises(PeerLost) as found, peer_errors():
            raise error
        assert found.value.__cause__ is error
    with pytest.raises(RuntimeError, match="size mismatch") as found, peer_errors():
        raise RuntimeError("size mismatch")
    assert type(found.value) is RuntimeError


@pytest.fixture(scope="module")
def alone():
    return everything()


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, tmp_path_factory):
    return start_all(request.param, tmp_path_factory.mktemp("meet"))


def test_several_processes_rank_as_one_does(alone, together):
    """31 queries do not divide evenly; near duplicates are excluded, groups kept apart, some rows answer only."""
    for found in together:
        for name, value in alone["rank"].items():
            assert torch.equal(found["rank"][name], value), name


def test_several_processes_go_the_same_way(together):
    for found in together:
        assert found["agree"]["anybody"].tolist() == [True, False]
        assert found["agree"]["same"].tolist() == [0, 1, 2] and found["agree"]["not before the first"].all()


@pytest.mark.parametrize("name", ["ProcSim", "PRISM"])
def test_several_processes_learn_as_one_does(alone, together, name):
    """MultiSimilarity with ProcSim and language guidance; PRISM with a memory. Gradients of the objective over the gathered
    batch, summed over the processes, are those of the whole batch alone, step after step; 13 samples do not divide evenly."""
    alone = alone[name]
    weights = [alone[f"{step} w"] for step in range(3)]
    assert min(float(w.min()) for w in weights) < 0.5 and all(float(w.max()) > 0 for w in weights)
    assert all(value.abs().max() > 1e-6 for value in alone.values())
    for found in together:
        assert found[name].keys() == alone.keys()
        for key, value in alone.items():
            assert torch.allclose(found[name][key], value, rtol=1e-9, atol=1e-13), key


@pytest.mark.slow
def test_torchrun_shares_an_evaluation_and_shows_it_once(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(90) % 12
    x = rng.normal(size=(12, 5))[y] + rng.normal(size=(90, 5))
    np.savez(tmp_path / "z.npz", x=x, label=y)
    words = ["-m", "likewise", "evaluate", str(tmp_path / "z.npz"), "--device", "cpu", "--metrics", "R@1", "mAP"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    many = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(port),
    ]
    alone, together = (
        subprocess.run([sys.executable, *before, *words], capture_output=True, text=True, timeout=600)
        for before in ([], many)
    )
    assert alone.returncode == together.returncode == 0, together.stderr
    assert "R@1" in alone.stdout and together.stdout == alone.stdout
