"""Cells of a sheet as columns: what is understood, and what is refused with its line."""

import dataclasses

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.data.features import read_features
from likewise.data.fingerprint import fingerprint
from likewise.data.images import drop
from likewise.data.schema import boxes, check_names, class_numbers, flags, galleries, groups, splits, weights
from likewise.data.tabular import Sheet


def sheet(**columns):
    count = len(next(iter(columns.values())))
    return Sheet("table", "t.csv", columns, list(range(2, count + 2)))


def test_integer_labels_are_sorted_by_value():
    y, names, clean = class_numbers(sheet(label=["10", "9", str(2**40), "-3", "9"]))
    assert names == ("-3", "9", "10", str(2**40))
    assert y.tolist() == [2, 1, 3, 0, 1]
    assert clean is None


def test_long_numbers_are_words():
    """Python refuses to read a number of more than 4300 digits."""
    long = sheet(label=["2", "9" * 5000, "10"], group=["1", "", "9" * 5000])
    assert class_numbers(long)[0].tolist() == [1, 2, 0] and groups(long).tolist() == [0, -1, 1]
    assert class_numbers(sheet(label=["2", "9" * 30, "10"]))[0].tolist() == [0, 2, 1]


def test_labels_of_any_type():
    assert class_numbers(sheet(label=[2**63, 5, 2**64]))[1] == ("5", str(2**63), str(2**64))
    assert class_numbers(sheet(label=[1.0, 10.0, 2.0]))[1] == ("1", "2", "10")
    assert class_numbers(sheet(label=["b", " a", "10"]))[1] == ("10", "a", "b")


def test_zeros_in_front_make_a_label_a_word():
    y, names, _ = class_numbers(sheet(label=["007", "7"]))
    assert names == ("007", "7")
    assert y.tolist() == [0, 1]


def test_class_names_belong_to_labels():
    _, names, _ = class_numbers(sheet(label=["2", "1", "2", "3"], class_name=["two", "one", "", ""]))
    assert names == ("one", "two", "3")
    with pytest.raises(LikewiseError, match=r"label '2' is 'two' in t\.csv line 2 and 'zwei' in line 4"):
        class_numbers(sheet(label=["2", "1", "2"], class_name=["two", "one", "zwei"]))


def test_clean_labels_share_the_numbering():
    y, names, clean = class_numbers(sheet(label=["1", "3"], label_clean=["2", "3"]))
    assert (y.tolist(), clean.tolist(), names) == ([0, 2], [1, 2], ("1", "2", "3"))


def test_a_class_that_only_clean_labels_know_is_named_by_them():
    cells = {"label": ["1", "3"], "label_clean": ["2", "3"], "class_name": ["one", "three"]}
    assert class_numbers(sheet(**cells, class_name_clean=["two", ""]))[1] == ("one", "two", "three")
    with pytest.raises(LikewiseError, match=r"'three' in t\.csv line 3 and 'drei' in line 3"):
        class_numbers(sheet(**cells, class_name_clean=["two", "drei"]))


@pytest.mark.parametrize("empty", ["", "  ", None, float("nan")])
def test_an_empty_label_is_an_error(empty):
    with pytest.raises(LikewiseError, match=r"it is empty in t\.csv line 3"):
        class_numbers(sheet(label=["a", empty]))


def test_a_broken_number_is_no_label():
    with pytest.raises(LikewiseError, match=r"got 1\.5 in t\.csv line 3"):
        class_numbers(sheet(label=[1.0, 1.5]))


def test_splits():
    assert splits(sheet(split=["train", "", "val", "test", None])).tolist() == ["train", "", "val", "test", ""]
    with pytest.raises(LikewiseError, match=r"got 'validation' in t\.csv line 3; did you mean 'val'\?"):
        splits(sheet(split=["train", "validation"]))
    with pytest.raises(LikewiseError, match=r"got 'Train' in t\.csv line 2; did you mean 'train'"):
        splits(sheet(split=["Train"]))
    with pytest.raises(LikewiseError, match=r"got 'zzz' in t\.csv line 2; use one of these"):
        splits(sheet(split=["zzz"]))


def test_flags():
    got = flags(sheet(query=["0", "1", "true", "FALSE", "", True, 1, 0.0, None]), "query")
    assert got.tolist() == [False, True, True, False, False, True, True, False, False]
    assert got.dtype == bool
    with pytest.raises(LikewiseError, match=r"gallery must be .* got 'yes' in t\.csv line 2"):
        flags(sheet(gallery=["yes"]), "gallery")


def test_galleries_are_flags_or_names():
    plain = galleries(sheet(gallery=["1", "0", "", "TRUE", None]))
    assert plain["gallery"].tolist() == [True, False, False, True, False] and plain["gallery_name"] is None
    named = galleries(sheet(gallery=["shop", "", " Street 2 ", None, "A"]))
    assert named["gallery_name"].tolist() == ["shop", "", "Street 2", "", "A"]
    assert named["gallery"].tolist() == [True, False, True, False, True]
    assert galleries(sheet(label=["a"])) == {"gallery": None, "gallery_name": None}


@pytest.mark.parametrize(
    "cells", [["shop", "1"], ["", "no"], ["shop", "Yes"], ["shop", False], ["2", "3"], ["shop", 0.5]]
)
def test_a_gallery_is_no_mixture_of_flags_and_names(cells):
    with pytest.raises(LikewiseError, match=r"gallery must be 0 or 1 .*, got"):
        galleries(sheet(gallery=cells))


def test_names_of_galleries_survive_a_file_and_a_drop_and_count_in_the_fingerprint(tmp_path):
    names = np.array(["shop", "", "street", "shop"])
    np.savez(tmp_path / "z.npz", x=np.eye(4, dtype=np.float32), label=np.array([0, 0, 1, 1]), gallery=names)
    items = read_features(str(tmp_path / "z.npz"))
    assert items.gallery_name.tolist() == names.tolist() and items.gallery.tolist() == [True, False, True, True]
    assert drop(items, [0]).gallery_name.tolist() == ["", "street", "shop"]
    other = dataclasses.replace(items, gallery_name=np.array(["shop", "", "shop", "shop"]))
    assert len({fingerprint(data) for data in (items, other, dataclasses.replace(items, gallery_name=None))}) == 3


def test_groups():
    assert groups(sheet(group=["cam2", "", "cam1", "cam2", None])).tolist() == [1, -1, 0, 1, -1]
    assert groups(sheet(group=["7", "", "12", "-1"])).tolist() == [7, -1, 12, -1]
    assert groups(sheet(group=[str(2**70), "5"])).tolist() == [0, 1]


def test_boxes_in_one_cell_or_four():
    nan = [np.nan] * 4
    np.testing.assert_equal(boxes(sheet(box=["1 2 3 4", "", "1.5,2, 3,4"])), [[1, 2, 3, 4], nan, [1.5, 2, 3, 4]])
    np.testing.assert_equal(boxes(sheet(box=[[1, 2, 3, 4], None])), [[1, 2, 3, 4], nan])
    four = sheet(left=["1", ""], top=["2", ""], right=["3", ""], bottom=["4", ""])
    np.testing.assert_equal(boxes(four), [[1, 2, 3, 4], nan])
    assert boxes(sheet(left=["1"], top=["2"])) is None


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("1 2 3", r"box must be four numbers, left top right bottom, got '1 2 3' in t\.csv line 2"),
        ("1 2 x 4", r"box must be a number, got 'x' in t\.csv line 2"),
        ("1 2 1 4", r"box must not be empty, got '1 2 1 4' in t\.csv line 2.*not width and height"),
        ("1 5 3 4", r"box must not be empty"),
        ("-1 2 3 4", r"box must lie inside its image, got '-1 2 3 4' in t\.csv line 2"),
        ("0 0 inf 4", r"box must lie inside its image"),
        ("nan 0 3 4", r"box must lie inside its image"),
    ],
)
def test_bad_boxes_are_explained(cell, message):
    with pytest.raises(LikewiseError, match=message):
        boxes(sheet(box=[cell]))


def test_boxes_given_twice_are_an_error():
    with pytest.raises(LikewiseError, match="has boxes twice"):
        boxes(sheet(box=["1 2 3 4"], left=["1"], top=["2"], right=["3"], bottom=["4"]))


def test_half_filled_corners_are_an_error():
    with pytest.raises(LikewiseError, match=r"box must be a number, got '' in t\.csv line 2"):
        boxes(sheet(left=["1"], top=[""], right=["3"], bottom=["4"]))


def test_weights():
    assert weights(sheet(weight=["0", "1.5", 2])).tolist() == [0.0, 1.5, 2.0]
    for cell, message in (
        ("-1", r"finite and not below 0, got -1.0 in t\.csv line 2"),
        ("nan", r"finite and not below 0, got nan"),
        ("inf", r"finite and not below 0, got inf"),
        (None, r"finite and not below 0, got nan"),
        ("", r"weight must be a number, got '' in t\.csv line 2"),
        ("1,5", r"weight must be a number, got '1,5' in t\.csv line 2"),
    ):
        with pytest.raises(LikewiseError, match=message):
            weights(sheet(weight=[cell]))


def test_a_slip_in_a_column_name_is_an_error_and_an_own_column_is_not():
    check_names("table", "t.csv", ["path", "label", "height", "width", "photographer", "bbox"])
    for slip, meant in (("splt", "split"), ("Weight", "weight"), ("classname", "class_name"), ("galery", "gallery")):
        with pytest.raises(LikewiseError, match=f"has a column '{slip}'; did you mean '{meant}'"):
            check_names("table", "t.csv", ["path", "label", slip])
