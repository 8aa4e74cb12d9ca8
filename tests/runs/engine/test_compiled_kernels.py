"""Compiled kernels between processes: what was compiled before is expected to take less time."""

import pytest
import torch
from torch import nn

from likewise.runs.engine import compiled_kernels
from likewise.runs.engine.compiled_kernels import (
    MAX_COMPILE_SECONDS,
    MAX_REUSE_SECONDS,
    expected_seconds,
    mark_compiled,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_kernels, "cache_folder", lambda: tmp_path)


def test_a_network_that_was_compiled_before_needs_less_time():
    network, x = nn.Linear(3, 2), torch.zeros(4, 3)
    assert expected_seconds(network, x, True) == MAX_COMPILE_SECONDS
    mark_compiled(network, x, True)
    assert expected_seconds(network, x, True) == MAX_REUSE_SECONDS


def test_the_mark_depends_on_network_batch_precision_and_trained_parameters():
    network, x = nn.Linear(3, 2), torch.zeros(4, 3)
    mark_compiled(network, x, True)
    assert expected_seconds(nn.Linear(3, 5), x, True) == MAX_COMPILE_SECONDS
    assert expected_seconds(network, torch.zeros(5, 3), True) == MAX_COMPILE_SECONDS
    assert expected_seconds(network, x, False) == MAX_COMPILE_SECONDS
    network.weight.requires_grad_(False)
    assert expected_seconds(network, x, True) == MAX_COMPILE_SECONDS


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "kernels").write_text("a file in place of the folder")
    mark_compiled(nn.Linear(3, 2), torch.zeros(4, 3), False)
    assert expected_seconds(nn.Linear(3, 2), torch.zeros(4, 3), False) == MAX_COMPILE_SECONDS
