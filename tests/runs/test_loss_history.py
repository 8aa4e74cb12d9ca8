"""losses.npz comes back as it was written."""

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.runs.folder import Run
from likewise.runs.loss_history import Losses, read_losses, write_losses


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_losses_over_time_are_read_or_known_to_be_damaged(run):
    assert run.losses() is None
    file = run.path / "losses.npz"
    columns = {"row": np.arange(3), "loss": np.ones((2, 3), np.float32), "step": np.array([4, 8])}
    np.savez(file, **columns)
    found = run.losses()
    assert all(np.array_equal(getattr(found, name), value) for name, value in columns.items())
    for damage in (b"", b"no archive", file.read_bytes()[:200]):
        file.write_bytes(damage)
        with pytest.raises(LikewiseError, match=r"losses.npz is damaged .*--restart"):
            run.losses()
    names = np.array(["a", "b", "c"])
    for damage in (
        {"step": np.arange(1)},
        {"row": names},
        {"row": columns["row"][None]},
        {"loss": np.ones(3, np.float32)},
    ):
        np.savez(file, **columns | damage)
        with pytest.raises(LikewiseError, match=r"losses.npz is damaged .*--restart"):
            run.losses()
    np.savez(file, row=np.arange(3))
    with pytest.raises(LikewiseError, match="is damaged"):
        run.losses()


def test_they_come_back(tmp_path):
    losses = Losses(np.arange(3), np.array([[1, 2, np.nan]], np.float32), np.array([7]))
    write_losses(tmp_path, losses)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(read_losses(tmp_path), losses, strict=True))
