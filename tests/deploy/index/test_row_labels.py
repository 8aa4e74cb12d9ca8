"""Labels of rows: numbers of new classes, and filters by label, inside which the ranking is exact."""

import json

import numpy as np
import pytest
from likewise.errors import LikewiseError
from make_index import make_index, make_rows, vectors

from likewise.deploy.index import stored_rows
from likewise.deploy.index.row_labels import (
    LabelFilter,
    allowed_rows,
    number_classes,
    parse_filter,
)
from likewise.deploy.index.stored_rows import Rows, pack
from likewise.deploy.index.vector_index import Index

SETS = (("dress", "red"), ("dress", "red", "striped"), ("blue", "dress"), ("red", "shirt"))


def rows_with_labels(count=40, similarity="cosine"):
    label = np.arange(count) % len(SETS)
    table, text = pack(np.arange(count), label, [f"{row}.png" for row in range(count)])
    names = tuple("|".join(own) for own in SETS)
    return Rows(vectors(count, similarity=similarity), table, text, names, np.ones(count, bool), similarity, SETS)


def test_filters_are_read(subtests):
    read = {
        "red": LabelFilter(("red",)),
        " red & !striped ": LabelFilter(("red",), ("striped",)),
        "!a&b c&!d e": LabelFilter(("b c",), ("a", "d e")),
        '"R & B" & ! "!x" & "say ""hi"""': LabelFilter(("R & B", 'say "hi"'), ("!x",)),
        "wow! & wow!": LabelFilter(("wow!",)),
        "<b>": LabelFilter(("<b>",)),
    }
    for text, wanted in read.items():
        with subtests.test(text):
            assert parse_filter(text) == wanted


def test_a_filter_that_cannot_be_read_is_an_error(subtests):
    for text in ("", " ", "red &", "& red", "!", "!!red", 'a "b"', '"a', "x" * 5000):
        with subtests.test(text), pytest.raises(LikewiseError, match="a filter must be labels joined by &"):
            parse_filter(text)
    with pytest.raises(LikewiseError, match="with and without !, got 'red'"):
        parse_filter("red & !red")


def test_rows_pass_by_their_labels():
    rows = rows_with_labels(8)
    assert np.flatnonzero(allowed_rows(rows, parse_filter("red & !striped"))).tolist() == [0, 3, 4, 7]
    assert np.flatnonzero(allowed_rows(rows, parse_filter("!red"))).tolist() == [2, 6]
    assert not allowed_rows(rows, parse_filter("blue & striped")).any()
    with pytest.raises(LikewiseError, match="got 'stripes'; did you mean 'striped'"):
        allowed_rows(rows, parse_filter("stripes"))
    assert rows.labels_of(1) == ("dress", "red", "striped")


def test_with_one_label_per_row_the_class_is_the_label():
    index = make_index(9)  # wren, robin, "tit, blue" in turn
    assert np.flatnonzero(allowed_rows(index.rows, parse_filter("!wren & !robin"))).tolist() == [2, 5, 8]
    assert index.rows.labels_of(1) == ("robin",) and index.rows.label_names == ("robin", "tit, blue", "wren")


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_the_ranking_inside_a_filter_is_exact_and_complete(similarity):
    index = Index(rows_with_labels(200, similarity))
    z, wanted = index.rows.vectors[:5], parse_filter("dress & !striped")
    inside = [hit.place for hits in index.find(z, 200, but=list(range(5))) for hit in hits]
    every = np.asarray(inside).reshape(5, 199)
    for query, hits in enumerate(index.find(z, 150, but=list(range(5)), wanted=wanted)):
        passing = [place for place in every[query].tolist() if place % 4 in (0, 2)]
        assert [hit.place for hit in hits] == passing  # all that pass, in the order of the whole ranking
    assert [len(hits) for hits in index.find(z, 7, wanted=wanted)] == [7] * 5


def test_new_classes_are_numbered_and_a_set_of_labels_is_one_class_in_any_order():
    found = number_classes(make_rows(4), ["owl", "robin", "owl"], None)
    assert found == ({"wren": 0, "robin": 1, "tit, blue": 2, "owl": 3}, ("wren", "robin", "tit, blue", "owl"), None)
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
    Index(rows_with_labels(8)).save(tmp_path / "shop")
    file = tmp_path / "shop" / "index.json"
    about = json.loads(file.read_text())
    for labels in (None, [], [["red"]], [[]] * 4, [["red", 1]] * 4, "red"):
        with subtests.test(str(labels)), pytest.raises(LikewiseError, match="labels is missing or invalid"):
            file.write_text(json.dumps(about | {"labels": labels}))
            Index.open(tmp_path / "shop")
