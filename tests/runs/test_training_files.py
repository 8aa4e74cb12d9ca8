"""trained.npz: a run knows the samples that trained, wherever they are now."""

import numpy as np
import pytest
from likewise.types import Items, LikewiseError

from likewise.data import load
from likewise.runs.folder import Run
from likewise.runs.training_files import (
    TRAINED_FILE,
    FinalWeights,
    Losses,
    find_trained,
    read_losses,
    read_sample_weights,
    read_trained,
    write_losses,
    write_sample_weights,
    write_trained,
)


def test_training_writes_the_samples_of_train_and_val(finished, features):
    items = load(features)
    found = read_trained(finished.path)
    assert found.has(items, np.arange(288)).tolist() == [True] * 144 + [False] * 144
    assert found.class_name == tuple(str(c) for c in range(12))


def test_pictures_are_found_under_other_names(finished_pictures, pictures, tmp_path):
    for c in (1, 4):
        (tmp_path / f"{c}.png").write_bytes((pictures / f"{c} färg" / "bild 2.png").read_bytes())
    moved = Items("moved", np.zeros(2, int), ("x",), path=("1.png", "4.png"), root=str(tmp_path))
    assert read_trained(finished_pictures.path).has(moved, np.arange(2)).tolist() == [True, False]


def test_it_comes_back_and_is_written_once(tmp_path):
    items = Items("toy", np.array([0, 2, 2]), ("a", "b", "ü"), x=np.eye(3, dtype=np.float32))
    assert read_trained(tmp_path) is None
    write_trained(tmp_path, items, np.array([0, 2]))
    write_trained(tmp_path, items, np.array([1]))
    found, want = read_trained(tmp_path), find_trained(items, np.array([0, 2]))
    assert np.array_equal(found.key, want.key) and found.class_name == want.class_name == ("a", "ü")
    (tmp_path / TRAINED_FILE).write_bytes(b"no archive")
    with pytest.raises(LikewiseError, match=r"trained.npz is damaged .*delete it"):
        read_trained(tmp_path)
    for key, names in (
        ([[1, 2]], ["a"]),
        ([1, 2], ["a"]),
        (np.ones((1, 16)), ["a"]),
        (np.ones((1, 16), np.uint8), [1]),
    ):
        np.savez(tmp_path / TRAINED_FILE, key=np.asarray(key), class_name=np.asarray(names))
        with pytest.raises(LikewiseError, match=r"trained.npz is damaged .*delete it"):
            read_trained(tmp_path)


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


def test_losses_come_back(tmp_path):
    losses = Losses(np.arange(3), np.array([[1, 2, np.nan]], np.float32), np.array([7]))
    write_losses(tmp_path, losses)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(read_losses(tmp_path), losses, strict=True))


NAMES = np.array(["a", "b"])
FINAL = FinalWeights(
    np.array([4, 5, 9, 11]), NAMES[[0, 0, 1, 1]], NAMES[[0, 1, 1, 0]], np.array([0.1, 0.9, np.nan, 0.8]),
    np.array([1, 0.5, np.nan, 0]),
)  # fmt: skip


def test_sample_weights_come_back(tmp_path):
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
        with pytest.raises(LikewiseError, match=r"me: .* is damaged .*--restart"):
            read_sample_weights(tmp_path, "me")
    write_sample_weights(tmp_path, FINAL._replace(weight=np.ones(3)))
    with pytest.raises(LikewiseError, match="its columns differ in length"):
        read_sample_weights(tmp_path, "me")
    np.savez(file, row=FINAL.row)
    with pytest.raises(LikewiseError, match="is damaged"):
        read_sample_weights(tmp_path, "me")
