import dataclasses

import numpy as np
import pytest

from likewise.data.images import check_files, drop, find_bad
from likewise.types import Items, LikewiseError


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
    assert "six: every image file must exist, but 4 cannot be used" in text
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
    with pytest.raises(LikewiseError, match="all 2 rows of f would be dropped"):
        drop(features, [1, 0])
    with pytest.raises(LikewiseError, match=r"rows must lie in 0\.\.5, got 2 to 6"):
        drop(items, [6, 2])
