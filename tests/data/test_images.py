import dataclasses

import numpy as np
import pytest
from likewise.types import Items, LikewiseError

from likewise.data.images import check_files, drop


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
    assert "six: every image file must exist, but 3 cannot be used" in text
    assert "0.png (missing)" in text
    assert "3.png (not a file)" in text
    assert "2.png" not in text  # an empty file exists: it is broken, not missing
    check_files(Items("f", np.zeros(1, int), ("a",), x=np.ones((1, 2), np.float32)))


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
