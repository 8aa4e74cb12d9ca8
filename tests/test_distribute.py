"""Several processes rank as one does, to the last row, with duplicates planted."""

import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
from distribute_work import rank_alone, start_all

from likewise.distribute import world


def test_alone_is_one_of_one():
    assert world() == (0, 1) and not dist.is_initialized()


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_rank_as_one_does(processes, tmp_path):
    """31 queries do not divide evenly; near duplicates are excluded, groups kept apart, some rows answer only."""
    alone = rank_alone()
    for found in start_all(processes, tmp_path):
        for name, value in alone.items():
            assert torch.equal(found[name], value), name


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
        subprocess.run([sys.executable, *before, *words], capture_output=True, text=True, timeout=240)
        for before in ([], many)
    )
    assert alone.returncode == together.returncode == 0, together.stderr
    assert "R@1" in alone.stdout and together.stdout == alone.stdout
