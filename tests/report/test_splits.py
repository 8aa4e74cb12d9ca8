"""The part of a file of embeddings that is shown: test where there are several, else all."""

import dataclasses

import numpy as np
from likewise.config import Report
from likewise.types import Items

from likewise.report.splits import shown_split, vectors_of


def test_the_test_part_is_shown_where_there_are_several():
    items = Items(
        "some", np.array([0, 1, 0, 1]), ("a", "b"), ("0", "1", "2", "3"), x=np.eye(4, dtype=np.float32),
        split=np.array(["train", "test", "test", "val"]), group=np.arange(4),
    )  # fmt: skip
    shown, row, part = shown_split(items, np.array([10, 11, 12, 13]))
    assert part == "test" and row.tolist() == [11, 12] and shown.path == ("1", "2") and shown.y.tolist() == [1, 0]
    third = dataclasses.replace(items, y=np.array([0, 2, 1, 1]), class_name=("a", "b", "c"))
    shown = shown_split(third, np.arange(4))[0]  # classes that only train are gone
    assert shown.class_name == ("b", "c") and shown.y.tolist() == [1, 0] and shown.classes == 2
    assert shown.group.tolist() == [1, 2] and (shown.x == np.eye(4)[1:3]).all()
    same = dataclasses.replace(items, split=np.full(4, "train"))
    assert shown_split(same, np.arange(4))[2] == "train" and len(shown_split(same, np.arange(4))[0]) == 4
    assert shown_split(dataclasses.replace(items, split=None), np.arange(4))[2] == "all"


def test_junk_is_not_shown():
    items = Items(
        "some", np.array([0, 1, 2, 1]), ("a", "b", "junk"), x=np.eye(4, dtype=np.float32),
        junk=np.array([False, False, True, False]), camera=np.array(["c1", "c1", "c2", "c2"]),
    )  # fmt: skip
    shown, row, part = shown_split(items, np.arange(4))
    assert part == "all" and row.tolist() == [0, 1, 3] and shown.class_name == ("a", "b")
    assert shown.camera.tolist() == ["c1", "c1", "c2"]


def test_vectors_of_a_file_are_those_of_its_test_part(tmp_path):
    x = np.arange(8, dtype=np.float32).reshape(4, 2) + 1
    split = np.array(["train", "test", "train", "test"])
    np.savez(tmp_path / "some.npz", x=x, label=np.arange(4) % 2, split=split, similarity="euclidean")
    found, similarity = vectors_of(str(tmp_path / "some.npz"), Report())
    assert (found == x[1::2]).all() and similarity == "euclidean"
