"""Several processes rank as one does, to the last row, with duplicates planted."""

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
