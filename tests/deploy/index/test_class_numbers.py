"""Numbers of the classes of new rows: single labels as before, and sets of labels."""

import json

import numpy as np
from deploy.index.test_label_filter import SETS, rows_with_labels
from make_index import make_index, make_rows, vectors

from likewise.deploy.index import stored_rows
from likewise.deploy.index.row_labels import number_classes
from likewise.deploy.index.vector_index import Index


def test_single_labels_are_numbered_in_order():
    found = number_classes(make_rows(4), ["owl", "robin", "owl"], None)
    assert found == ({"wren": 0, "robin": 1, "tit, blue": 2, "owl": 3}, ("wren", "robin", "tit, blue", "owl"), None)


def test_a_set_of_labels_is_one_class_in_any_order():
    number, classes, sets = number_classes(rows_with_labels(4), ["red|dress", "hat"], None)
    assert number == {"red|dress": 0, "hat": 4} and classes[4] == "hat" and sets == (*SETS, ("hat",))
    number, classes, sets = number_classes(make_rows(4), ["x"], {"x": ("robin", "big")})
    assert number == {"x": 3} and classes[3] == "big|robin" and sets[:2] == (("wren",), ("robin",))


def test_labels_are_saved_read_and_added(tmp_path):
    index = Index(rows_with_labels(12))
    index.save(tmp_path / "shop")
    row = index.add(vectors(2, seed=5), ["dress|red", "hat|red"], ["a.png", "b.png"])
    again = Index.open(tmp_path / "shop")
    assert [again.rows.labels_of(int(place)) for place in again.rows.places(row.tolist())] == [
        ("dress", "red"),
        ("hat", "red"),
    ]
    assert again.rows.labels == (*SETS, ("hat", "red")) and again.about["format"] == stored_rows.LABELS_FORMAT
    again.remove(row.tolist())
    assert Index.open(tmp_path / "shop").rows.labels == again.rows.labels


def test_an_index_of_single_labels_keeps_its_format_and_old_ones_open(tmp_path):
    index = make_index(6)
    index.save(tmp_path / "birds")
    about = json.loads((tmp_path / "birds" / "index.json").read_text())
    assert about["format"] == stored_rows.FORMAT and "labels" not in about
    assert Index.open(tmp_path / "birds").rows.labels is None
    index.add(vectors(1, seed=5), ["x"], ["a.png"], labels={"x": ("wren", "small")})  # now rows have several labels
    rows = Index.open(tmp_path / "birds").rows
    assert rows.labels_of(6) == ("small", "wren") and rows.labels_of(0) == ("wren",)
    np.testing.assert_array_equal(rows.table["label"], [0, 1, 2, 0, 1, 2, 3])


def test_damaged_labels_are_told(tmp_path, subtests):
    import pytest
    from likewise.errors import LikewiseError

    Index(rows_with_labels(8)).save(tmp_path / "shop")
    file = tmp_path / "shop" / "index.json"
    about = json.loads(file.read_text())
    for labels in (None, [], [["red"]], [[]] * 4, [["red", 1]] * 4, "red"):
        with subtests.test(str(labels)), pytest.raises(LikewiseError, match="labels is missing or invalid"):
            file.write_text(json.dumps(about | {"labels": labels}))
            Index.open(tmp_path / "shop")
