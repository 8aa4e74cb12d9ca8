"""trained.npz: a run knows the samples that trained, wherever they are now."""

import numpy as np
import pytest
from likewise.types import Items, LikewiseError

from likewise.data import load
from likewise.runs.trained import TRAINED_FILE, find_trained, read_trained, write_trained


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
