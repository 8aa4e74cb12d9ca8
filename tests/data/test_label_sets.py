"""Pairs of samples and labels, new sets of labels as new classes, and joined names of labels."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from likewise.types import Items, LikewiseError

from likewise.data import load
from likewise.data.features import read_embeddings, read_features
from likewise.data.fingerprint import fingerprint
from likewise.data.images import drop, kept_sets
from likewise.data.label_sets import (
    join_labels,
    labels_by_class,
    sample_labels,
    set_names,
    split_labels,
    with_label_sets,
    with_labels,
)
from likewise.data.own_reader import check_items
from likewise.data.table import read_table, write_noisy, write_table

NAMES = ("dress", "red", "striped")
SETS = ((0,), (0, 1), (1, 2))
ITEMS = Items(
    "t", np.array([1, 0, 1, 2]), ("dress", "dress|red", "red|striped"), path=("1", "2", "3", "4"), label_name=NAMES,
    label_sets=SETS,
)  # fmt: skip


def test_pairs_of_samples_and_labels():
    items = ITEMS
    sample, label = sample_labels(items, items.y)
    assert list(zip(sample.tolist(), label.tolist())) == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (3, 1), (3, 2)]
    assert set_names(items.label_sets, items.label_name) == items.class_name
    plain = Items("t", np.array([1, 0]), ("a", "b"), path=("1", "2"))
    assert [column.tolist() for column in sample_labels(plain, plain.y)] == [[0, 1], [1, 0]]


def test_other_labels_keep_the_numbers_of_the_classes():
    items = ITEMS
    changed = with_labels(items, np.array([1, 3]), np.array([1, 0, 1]), np.array([1, 2, 0]))
    assert changed.class_name == (*items.class_name, "striped") and changed.label_sets == (*items.label_sets, (2,))
    assert [changed.class_name[c] for c in changed.y] == ["dress|red", "striped", "dress|red", "dress|red"]
    check_items(changed, "test")


def test_names_are_split_and_joined():
    assert split_labels("dress|red") == ("dress", "red")
    assert split_labels(" red | red |dress|") == ("red", "dress")
    assert split_labels("|") == ("|",) and split_labels("plain") == ("plain",)
    assert join_labels(("dress", "red")) == "dress|red"


def test_items_get_their_label_sets():
    items = Items("shop", np.array([0, 1, 1]), ("dress|red", "red|shirt"))
    found = with_label_sets(items)
    assert found.label_name == ("dress", "red", "shirt") and found.label_sets == ((0, 1), (1, 2))
    assert labels_by_class(found) == (("dress", "red"), ("red", "shirt")) and labels_by_class(items) is None


X = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
TABLE = 'path,labels\n1,red|dress\n2, dress \n3,"dress | red|dress"\n4,striped|red\n'


def assert_same(a: Items, b: Items):
    for field in dataclasses.fields(Items):
        if field.name not in ("root", "name"):
            np.testing.assert_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def test_a_class_is_a_set_of_labels(write):
    items = read_table(write("t.csv", TABLE))
    assert items.label_name == ("dress", "red", "striped")
    assert items.label_sets == ((0,), (0, 1), (1, 2)) and items.class_name == ("dress", "dress|red", "red|striped")
    assert items.y.tolist() == [1, 0, 1, 2] and items.y_clean is None
    assert (
        "4 samples of 3 classes, sets of 3 labels" in repr(items) and "of which a class is a set" in items._repr_html_()
    )


def test_labels_that_are_numbers_are_sorted_by_value(write):
    items = read_table(write("t.csv", "path,labels\n1,10|9\n2,2\n"))
    assert items.label_name == ("2", "9", "10") and items.class_name == ("2", "9|10")


@pytest.mark.parametrize("clean", ["", ",a", ",b"])
def test_one_label_in_every_row_is_plain_data(write, clean):
    several = f"path,labels,class_name{',labels_clean' * bool(clean)}\n"
    lines = f"1,b,boat{clean}\n2,a,{clean}\n3,b,boat{clean}\n"
    plain = read_table(write("p.csv", several.replace("labels", "label") + lines))
    assert_same(read_table(write("t.csv", several + lines)), plain)
    assert plain.label_sets is None and plain.label_name is None
    assert_same(read_table(write("t.csv", several + lines.replace("b,boat", "b| b ,boat"))), plain)


def test_a_bar_in_the_column_label_is_part_of_a_name(write):
    items = read_table(write("t.csv", "path,label\n1,a|b\n2,a\n"))
    assert items.class_name == ("a", "a|b") and items.label_sets is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,label,labels\n1,a,a|b\n", r"got both; drop one, or choose: .*\?lab"),
        ("path,labels\n1,a|b\n2,\n", r"labels, but it is empty in t\.csv line 3"),
        ("path,labels\n1,a|b\n2, | \n", r"a label in labels, got '\|' in t\.csv line 3"),
        ("path,labels\n1,\n", r"labels, but it is empty in t\.csv line 2"),
        ("path,labels,class_name\n1,a|b,x\n", "the column class_name cannot name them; .* drop class_name"),
        ("path,labels,label_clean\n1,a|b,x\n", "column labels_clean, got label_clean"),
        ("path,label,labels_clean\n1,a,a|b\n", "label must be in the column label_clean, got labels_clean"),
        ("file,Labels\n1,a|b\n", r"write DATA as \"t\.csv\?path=file&labels=L"),
        ("file,labels\n1,a|b\n", r"to read 'file' as path, write DATA as \"t\.csv\?path=file\""),
    ],
)
def test_bad_tables_are_explained(write, content, message):
    with pytest.raises(LikewiseError, match=message):
        read_table(write("t.csv", content))


def test_other_names_of_the_column(write):
    file = write("t.csv", "path,label,tags\n1,x,a|b\n2,y,b\n")
    assert load(f"{file}?labels=tags").class_name == ("a|b", "b")
    assert load(file).class_name == ("x", "y")
    both = write("both.csv", "path,label,labels\n1,x,a|b\n2,y,b\n")
    assert load(f"{both}?labels=labels").class_name == ("a|b", "b")
    assert load(f"{both}?label=label").class_name == ("x", "y")
    assert load(write("empty.csv", "path,label,labels\n1,x,\n2,y,\n")).class_name == ("x", "y")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_round_trip(tmp_path, write, suffix):
    items = read_table(write("t.csv", TABLE.replace("labels", "labels,labels_clean,split").replace("\n", ",hat|red,val\n")
                             .replace("split,hat|red,val", "split")))  # fmt: skip
    assert items.label_name == ("dress", "hat", "red", "striped") and items.y_clean.tolist() == [2, 2, 2, 2]
    write_table(items, str(tmp_path / f"o.{suffix}"))
    assert_same(read_table(str(tmp_path / f"o.{suffix}")), items)
    features = dataclasses.replace(items, path=None, x=X)
    write_table(features, str(tmp_path / "f.parquet"))
    assert_same(read_features(str(tmp_path / "f.parquet")), features)
    write_noisy(dataclasses.replace(items, y_clean=np.array([1, 0, 0, 3])), tmp_path / "n.csv", drop_wrong=True)
    left = read_table(str(tmp_path / "n.csv"))
    assert [left.class_name[c] for c in left.y] == ["dress|red", "dress", "red|striped"] and left.y_clean is None


def test_a_name_that_a_cell_cannot_hold_is_not_written(tmp_path):
    items = Items(
        "t", np.array([0, 1]), ("a|b", "a|b|c"), path=("1", "2"), label_name=("a|b", "c"), label_sets=((0,), (0, 1))
    )
    with pytest.raises(LikewiseError, match=r"hold '\|' .* got 'a\|b'"):
        write_table(items, str(tmp_path / "t.csv"))


def test_lists_in_parquet_and_text_in_arrays(tmp_path, write):
    plain = read_table(write("t.csv", TABLE))
    cells = [["red", "dress"], ["dress"], ["dress", " red "], ["striped", "red", "striped"]]
    pq.write_table(pa.table({"path": ["1", "2", "3", "4"], "labels": cells}), tmp_path / "t.parquet")
    assert_same(read_table(str(tmp_path / "t.parquet")), plain)
    pq.write_table(pa.table({"path": ["1", "2"], "labels": [[3, 1], [1]]}), tmp_path / "n.parquet")
    assert read_table(str(tmp_path / "n.parquet")).class_name == ("1", "1|3")
    pq.write_table(pa.table({"path": ["1", "2"], "labels": [["a"], []]}), tmp_path / "e.parquet")
    with pytest.raises(LikewiseError, match=r"it is empty in e\.parquet row 2"):
        read_table(str(tmp_path / "e.parquet"))
    np.savez(tmp_path / "f.npz", x=X, labels=np.array(["red|dress", "dress", "dress|red", "striped|red"]))
    found = read_features(str(tmp_path / "f.npz"))
    assert_same(dataclasses.replace(found, x=None, path=plain.path), plain)
    np.savez(tmp_path / "s.npz", x=X, labels=[3, 1, 3, 1])
    assert read_features(str(tmp_path / "s.npz")).class_name == ("1", "3")
    np.save(tmp_path / "x.npy", X)
    beside = read_embeddings(str(tmp_path / "x.npy"), write("l.csv", TABLE.replace("path", "place")))
    assert beside.class_name == plain.class_name and beside.y.tolist() == plain.y.tolist()


def test_embeddings_have_numbers_names_and_labels(tmp_path):
    """As `save_embeddings` writes them."""
    cells = np.array(["b|c", "a", "b|c", "c"])
    np.savez(tmp_path / "e.npz", x=X, label=[2, 0, 2, 3], class_name=cells, labels=cells)
    items = read_embeddings(str(tmp_path / "e.npz"))
    assert (
        items.class_name == ("a", "b|c", "c")
        and items.label_sets == ((0,), (1, 2), (2,))
        and items.y.tolist() == [1, 0, 1, 2]
    )


def test_drop_renumbers_sets_and_labels(write):
    items = read_table(write("t.csv", TABLE))
    left = drop(items, [1, 2])
    assert_same(left, read_table(write("t.csv", "path,labels\n1,red|dress\n4,striped|red\n")))
    assert_same(drop(items, [3]), read_table(write("t.csv", "path,labels\n1,red|dress\n2,dress\n3,red|dress\n")))
    single = drop(items, [0, 2, 3])
    assert_same(single, read_table(write("t.csv", "path,label\n2,dress\n")))
    assert kept_sets(items, [2, 0]) == {"label_name": items.label_name, "label_sets": ((1, 2), (0,))}


def test_the_fingerprint():
    plain = Items(
        "f", np.array([0, 1, 0]), ("a", "b|c"), x=X[:3], split=np.array(["train", "test", ""]),
    )  # fmt: skip
    assert (
        fingerprint(plain) == "8b525daf625a5297b5d551d07e087ca5a9b992705b92cd1ada8e7cba45ece3b5"
    )  # of the version without label sets
    several = dataclasses.replace(plain, label_name=("a", "b", "c"), label_sets=((0,), (1, 2)))
    other = dataclasses.replace(several, label_name=("a", "b", "d"))
    third = dataclasses.replace(several, label_sets=((0,), (0, 2)))
    assert len({fingerprint(one) for one in (plain, several, other, third)}) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_name": None}, "one of label_name and label_sets is missing"),
        ({"label_sets": ((0,),)}, "label_sets does not have one entry for each of the 2 classes"),
        ({"label_sets": ((0,), ())}, "empty or not ascending"),
        ({"label_sets": ((0,), (1, 0))}, "empty or not ascending"),
        ({"label_sets": ((0,), (0, 2))}, "not within 0 to 1, the 2 entries of label_name"),
        ({"label_name": ("a", "a")}, "label_name holds a name twice"),
        ({"class_name": ("a", "x")}, "class_name does not join the names of label_sets"),
    ],
)
def test_a_reader_is_checked(change, message):
    good = Items("t", np.array([0, 1]), ("a", "a|b"), x=X[:2], label_name=("a", "b"), label_sets=((0,), (0, 1)))
    assert check_items(good, "boats") is good
    with pytest.raises(LikewiseError, match=message):
        check_items(dataclasses.replace(good, **change), "boats")


def test_labels_of_a_list_cannot_hold_the_separator_or_be_empty(tmp_path):
    for labels, error in (
        ([["a|b"], ["a", "c"]], r"'\|' separates labels.* got 'a\|b' in t.parquet row 1"),
        ([["a", "b"], ["a", None]], r"a label must not be empty, got \['a', None\] in labels in t.parquet row 2"),
    ):
        pq.write_table(pa.table({"x": X[:2].tolist(), "labels": labels}), tmp_path / "t.parquet")
        with pytest.raises(LikewiseError, match=error):
            read_embeddings(str(tmp_path / "t.parquet"))


def test_a_printed_list_is_refused(write):
    with pytest.raises(LikewiseError, match="got the printed list \"\\['red'"):
        read_table(write("t.csv", "path,labels\n1,\"['red', 'blue']\"\n2,red\n"))
    assert read_table(write("t.csv", "path,labels\n1,[red]|blue\n2,[red]\n")).label_name == ("[red]", "blue")
