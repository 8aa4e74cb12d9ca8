"""What counts in the identity of a data set, and what does not."""

import dataclasses

import numpy as np
import pytest
from likewise.types import Items, LikewiseError

from likewise.data.fingerprint import fingerprint


def test_it_does_not_know_where_the_data_lies(items, tmp_path):
    there = tmp_path.parent / f"{tmp_path.name}-moved"
    name = fingerprint(items)
    tmp_path.rename(there)
    moved = dataclasses.replace(items, root=str(there), name="other")
    assert fingerprint(moved) == name
    full = dataclasses.replace(moved, path=tuple(str(there / p) for p in items.path))
    assert fingerprint(full) == name
    there.rename(tmp_path)
    assert len(name) == 64


def test_every_column_counts(items):
    changed = {
        "y": items.y[::-1].copy(),
        "class_name": ("a", "b", "d"),
        "path": ("1.png", "0.png", *items.path[2:]),
        "split": None,
        "query": ~items.query,
        "gallery": items.query,
        "group": items.group + 1,
        "camera": np.array(["c1", "c2", "c1", "c2", "c2", ""]),
        "junk": ~items.junk,
        "box": items.box + 1,
        "weight": items.weight * 2,
        "y_clean": None,
        "taxonomy": None,
    }
    names = {fingerprint(items)} | {fingerprint(dataclasses.replace(items, **{k: v})) for k, v in changed.items()}
    assert len(names) == len(changed) + 1


def test_words_are_framed(items):
    a, b = (dataclasses.replace(items, class_name=names) for names in (("a", "bc", "d"), ("ab", "c", "d")))
    assert fingerprint(a) != fingerprint(b)


def test_columns_are_told_apart(items):
    asks = dataclasses.replace(items, gallery=None)
    answers = dataclasses.replace(items, query=None, gallery=items.query)
    assert fingerprint(asks) != fingerprint(answers)


def test_the_type_of_numbers_does_not_count(items):
    small = dataclasses.replace(items, y=items.y.astype(np.int32), box=items.box.astype(np.float32))
    assert fingerprint(small) == fingerprint(items)


def test_sizes_of_files_count(items, tmp_path):
    before = fingerprint(items)
    with open(tmp_path / "0.png", "ab") as file:
        file.write(b"x")
    assert fingerprint(items) != before
    (tmp_path / "0.png").unlink()
    with pytest.raises(LikewiseError, match=r"0\.png \(missing\)"):
        fingerprint(items)


def test_features_count_by_their_bytes():
    features = Items("f", np.array([0, 1]), ("a", "b"), x=np.array([[1, 2], [3, 4]], np.float32))
    other = dataclasses.replace(features, x=features.x + np.float32(1e-6))
    assert fingerprint(features) != fingerprint(other)
    assert fingerprint(features) == fingerprint(dataclasses.replace(features, x=np.asfortranarray(features.x)))
