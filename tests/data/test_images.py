import dataclasses

import numpy as np
import pytest
from PIL import Image

from likewise.data.images import check_files, drop, find_bad, fingerprint
from likewise.types import Items, LikewiseError


def noisy(size=(64, 64)):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))


@pytest.fixture
def items(tmp_path):
    for row in range(6):
        noisy((40, 50 + row)).save(tmp_path / f"{row}.png")
    return Items(
        "six",
        np.array([0, 0, 1, 1, 2, 2]),
        ("a", "b", "c"),
        path=tuple(f"{row}.png" for row in range(6)),
        root=str(tmp_path),
        split=np.array(["train"] * 4 + ["test"] * 2),
        query=np.array([0, 1, 0, 1, 0, 1], bool),
        gallery=np.array([1, 0, 1, 0, 1, 0], bool),
        group=np.array([0, 0, 1, 1, -1, -1]),
        box=np.array([[np.nan] * 4] * 5 + [[0, 0, 30, 30]]),
        weight=np.arange(6.0),
        y_clean=np.array([0, 0, 1, 1, 2, 2]),
        taxonomy={"a": ("top",), "b": ("top",), "c": ("top", "low")},
    )


def test_check_files(items, tmp_path):
    check_files(items)
    for name in ("0.png", "2.png", "3.png", "5.png"):
        (tmp_path / name).unlink()
    (tmp_path / "2.png").touch()
    (tmp_path / "3.png").mkdir()
    check_files(items, rows=[1, 4])
    with pytest.raises(LikewiseError) as error:
        check_files(items)
    text = str(error.value)
    assert "six: every picture must be there, but 4 cannot be used" in text
    assert "0.png (missing)" in text
    assert "2.png (empty or not a file)" in text
    assert "3.png (empty or not a file)" in text
    assert "and 1 more" in text
    assert "5.png" not in text
    check_files(Items("f", np.zeros(1, int), ("a",), x=np.ones((1, 2), np.float32)))


@pytest.mark.parametrize("workers", [0, 2])
def test_find_bad(items, tmp_path, workers):
    (tmp_path / "1.png").write_bytes(b"")
    whole = (tmp_path / "4.png").read_bytes()
    (tmp_path / "4.png").write_bytes(whole[:100])
    steps = []
    bad = find_bad(items, None, workers, lambda done, total: steps.append((done, total)))
    assert [row for row, _ in bad] == [1, 4]
    assert "the file is empty" in bad[0][1]
    assert "cannot be decoded" in bad[1][1]
    assert steps[-1] == (6, 6)
    assert find_bad(items, [0, 2, 5], workers) == []


def test_find_bad_sees_boxes(items):
    wide = dataclasses.replace(items, box=np.array([[np.nan] * 4] * 5 + [[0, 0, 300, 30]]))
    assert [row for row, _ in find_bad(wide)] == [5]


def test_drop_filters_every_column(items):
    left = drop(items, [0, 2, 3])
    assert left.path == ("1.png", "4.png", "5.png")
    assert left.class_name == ("a", "c")
    assert left.y.tolist() == [0, 1, 1]
    assert left.y_clean.tolist() == [0, 1, 1]
    assert left.taxonomy == {"a": ("top",), "c": ("top", "low")}
    for name in ("split", "query", "gallery", "group", "box", "weight"):
        np.testing.assert_array_equal(getattr(left, name), getattr(items, name)[[1, 4, 5]], err_msg=name)
    per_row = [f.name for f in dataclasses.fields(Items) if isinstance(getattr(items, f.name), np.ndarray)]
    assert all(len(getattr(left, name)) == 3 for name in per_row)
    assert len(items) == 6


def test_drop_keeps_classes_that_only_clean_labels_know(items):
    noisy_labels = dataclasses.replace(items, y=np.array([0, 0, 0, 0, 2, 2]))
    left = drop(noisy_labels, [0])
    assert left.class_name == ("a", "b", "c")
    assert left.y_clean.tolist() == [0, 1, 1, 2, 2]


def test_drop_of_features_and_of_nothing(items):
    features = Items("f", np.array([0, 1]), ("a", "b"), x=np.array([[1], [3]], np.float32))
    assert drop(features, [0]).x.tolist() == [[3]]
    assert drop(items, []).path == items.path
    with pytest.raises(LikewiseError, match="all 2 rows of f would go"):
        drop(features, [1, 0])
    with pytest.raises(LikewiseError, match=r"rows must lie in 0\.\.5, got 2 to 6"):
        drop(items, [6, 2])


class TestFingerprint:
    def test_it_does_not_know_where_the_data_lies(self, items, tmp_path):
        there = tmp_path.parent / f"{tmp_path.name}-moved"
        name = fingerprint(items)
        tmp_path.rename(there)
        moved = dataclasses.replace(items, root=str(there), name="other")
        assert fingerprint(moved) == name
        full = dataclasses.replace(moved, path=tuple(str(there / p) for p in items.path))
        assert fingerprint(full) == name
        there.rename(tmp_path)
        assert len(name) == 64

    def test_every_column_counts(self, items):
        changed = {
            "y": items.y[::-1].copy(),
            "class_name": ("a", "b", "d"),
            "path": ("1.png", "0.png", *items.path[2:]),
            "split": None,
            "query": ~items.query,
            "gallery": items.query,
            "group": items.group + 1,
            "box": items.box + 1,
            "weight": items.weight * 2,
            "y_clean": None,
            "taxonomy": None,
        }
        names = {fingerprint(items)} | {fingerprint(dataclasses.replace(items, **{k: v})) for k, v in changed.items()}
        assert len(names) == len(changed) + 1

    def test_words_are_framed(self, items):
        a, b = (dataclasses.replace(items, class_name=names) for names in (("a", "bc", "d"), ("ab", "c", "d")))
        assert fingerprint(a) != fingerprint(b)

    def test_columns_are_told_apart(self, items):
        asks = dataclasses.replace(items, gallery=None)
        answers = dataclasses.replace(items, query=None, gallery=items.query)
        assert fingerprint(asks) != fingerprint(answers)

    def test_the_type_of_numbers_does_not_count(self, items):
        small = dataclasses.replace(items, y=items.y.astype(np.int32), box=items.box.astype(np.float32))
        assert fingerprint(small) == fingerprint(items)

    def test_sizes_of_files_count(self, items, tmp_path):
        before = fingerprint(items)
        with open(tmp_path / "0.png", "ab") as file:
            file.write(b"x")
        assert fingerprint(items) != before
        (tmp_path / "0.png").unlink()
        with pytest.raises(LikewiseError, match=r"0\.png \(missing\)"):
            fingerprint(items)

    def test_features_count_by_their_bytes(self):
        features = Items("f", np.array([0, 1]), ("a", "b"), x=np.array([[1, 2], [3, 4]], np.float32))
        other = dataclasses.replace(features, x=features.x + np.float32(1e-6))
        assert fingerprint(features) != fingerprint(other)
        assert fingerprint(features) == fingerprint(dataclasses.replace(features, x=np.asfortranarray(features.x)))
