"""Times of execution modes between processes: what was written is read, and what cannot be right is not."""

import math

import pytest
import torch
from torch import nn

from likewise.runs.engine import mode_times
from likewise.runs.engine.mode_times import read_times, write_times

NETWORK, X = nn.Linear(3, 2), torch.zeros(4, 3)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(mode_times, "cache_folder", lambda: tmp_path)


def test_times_are_read_as_written_for_this_network_and_batch():
    assert read_times(NETWORK, X, True) == {}
    write_times(NETWORK, X, True, {"eager": 10.25, "graph": 6.5})
    assert read_times(NETWORK, X, True) == {"eager": 10.25, "graph": 6.5}
    assert (
        read_times(NETWORK, X, False) == read_times(NETWORK, X[:3], True) == read_times(nn.Linear(3, 5), X, True) == {}
    )


def test_a_mode_that_failed_is_not_kept():
    write_times(NETWORK, X, False, {"eager": 10.0, "graph": math.inf})
    assert read_times(NETWORK, X, False) == {"eager": 10.0}


@pytest.mark.parametrize("text", ["", "[1, 2]", "null", '{"eager": "fast"}', '{"eager": -1}', '{"eager": NaN}'])
def test_a_damaged_file_counts_as_none(tmp_path, text):
    write_times(NETWORK, X, False, {"eager": 10.0})
    (file,) = (tmp_path / "kernels" / "times").iterdir()
    file.write_text(text)
    assert read_times(NETWORK, X, False) == {}


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "kernels").write_text("a file in place of the folder")
    write_times(NETWORK, X, False, {"eager": 10.0})
    assert read_times(NETWORK, X, False) == {}
