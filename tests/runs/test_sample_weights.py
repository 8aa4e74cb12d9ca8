"""sample_weights.npz comes back as it was written."""

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.runs.sample_weights import FinalWeights, read_sample_weights, write_sample_weights

NAMES = np.array(["a", "b"])
FINAL = FinalWeights(
    np.array([4, 5, 9, 11]), NAMES[[0, 0, 1, 1]], NAMES[[0, 1, 1, 0]], np.array([0.1, 0.9, np.nan, 0.8]),
    np.array([1, 0.5, np.nan, 0]),
)  # fmt: skip


def test_they_come_back(tmp_path):
    assert read_sample_weights(tmp_path, "me") is None
    write_sample_weights(tmp_path, FINAL)
    found = read_sample_weights(tmp_path, "me")
    for name in FINAL._fields:
        assert np.array_equal(getattr(found, name), getattr(FINAL, name), equal_nan=name in ("suspicion", "weight"))
    assert found.dropped.tolist() == [False, False, False, True]  # a sample in no batch was not dropped
    assert found.relabelled.tolist() == [False, True, False, False]


def test_damaged_files_are_told(tmp_path):
    file = tmp_path / "sample_weights.npz"
    write_sample_weights(tmp_path, FINAL)
    for damage in (b"", b"no archive", file.read_bytes()[:100]):
        file.write_bytes(damage)
        with pytest.raises(
            LikewiseError, match=r"me: .*sample_weights.npz is damaged .*use --restart to train the run again"
        ):
            read_sample_weights(tmp_path, "me")
    write_sample_weights(tmp_path, FINAL._replace(weight=np.ones(3)))
    with pytest.raises(LikewiseError, match="its columns differ in length"):
        read_sample_weights(tmp_path, "me")
    np.savez(file, row=FINAL.row)
    with pytest.raises(LikewiseError, match="is damaged"):
        read_sample_weights(tmp_path, "me")
