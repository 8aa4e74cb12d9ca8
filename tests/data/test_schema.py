"""Cells of a sheet as columns: what is understood, and what is refused with its line."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from likewise.types import LikewiseError

from likewise.data.features import read_features
from likewise.data.fingerprint import fingerprint
from likewise.data.images import drop
from likewise.data.schema import boxes, check_names, class_numbers, flags, galleries, groups, splits, weights
from likewise.data.tabular import Sheet, read_csv, read_parquet


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


def test_lines_are_counted_as_an_editor_does(write):
    file = write("t.csv", 'path,label\r\n\r\n"a\nb.png",1\r\nc.png,2\r\n')
    sheet = read_csv(file)
    assert sheet.column["path"] == ["a\nb.png", "c.png"]
    assert sheet.line == [3, 5]
    assert sheet.at(1) == "t.csv line 5"


def test_a_byte_order_mark_is_accepted(write):
    assert list(read_csv(write("t.csv", b"\xef\xbb\xbfpath,label\na,1\n")).column) == ["path", "label"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"path,label\na,1\nb,\xe9t\xe9\n", r"t\.csv must be UTF-8, but line 3 holds the byte 0xe9"),
        (b"", r"must hold a header and rows, but it is empty"),
        (b"\n \n", r"must hold a header and rows, but it is empty"),
        (b"path,label\n", r"must hold at least one row, but it has only a header"),
        (b"path,label\na,1\nb\n", r"line 3 must have 2 cells like the header, got 1"),
        (b"path,label\na,b,1\n", r"line 2 must have 2 cells like the header, got 3.*quotes"),
        (b"path;label\na;1\n", r"must be separated by commas, got 'path;label'"),
        (b"path,label,label\na,1,2\n", r"has the column 'label' more than once"),
        (b'path,label\na,1\n"b,2\n', r"line 3 is not CSV"),
    ],
)
def test_bad_files_are_explained(write, content, message):
    with pytest.raises(LikewiseError, match=message):
        read_csv(write("t.csv", content))


def test_a_missing_file_is_explained(tmp_path):
    with pytest.raises(LikewiseError, match=r"gone\.csv cannot be read \(No such file"):
        read_csv(str(tmp_path / "gone.csv"))


def test_a_missing_column_names_the_columns_there_are(write):
    sheet = read_csv(write("birds.csv", "path,lable\na,1\n"))
    with pytest.raises(LikewiseError) as error:
        sheet.need("label")
    assert str(error.value) == (
        "table: the column 'label' is missing from birds.csv; it has: path, lable; "
        "did you mean 'lable'? Rename it to 'label'"
    )
    with pytest.raises(LikewiseError, match=r"did you mean 'PATH'\?"):
        read_csv(write("t.csv", "PATH,label\na,1\n")).need("path")


def test_bad_parquet_is_explained(write, tmp_path):
    with pytest.raises(LikewiseError, match=r"t\.parquet is not a readable Parquet file"):
        read_parquet(write("t.parquet", "path,label\n"))
    pq.write_table(pa.table({"path": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(LikewiseError, match=r"empty\.parquet must hold at least one row"):
        read_parquet(str(tmp_path / "empty.parquet"))


def test_text_that_is_not_utf8_in_parquet_is_explained(tmp_path):
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes())
    words = pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"\xff\xfe"))
    pq.write_table(pa.table({"path": words, "label": [0, 1]}), tmp_path / "t.parquet")
    with pytest.raises(LikewiseError, match=r"t\.parquet .*; write it again"):
        read_parquet(str(tmp_path / "t.parquet"))


def test_names_of_images_may_hold_any_bytes_and_other_cells_may_not(write):
    text = b"path,label,n\np/caf\xe9/\xff.png,caf\xe9,1\np/b/1.png,caf\xe9,2\n"
    sheet = read_csv(write("t.csv", text))
    assert sheet.column["path"] == ["p/caf\udce9/\udcff.png", "p/b/1.png"]
    assert sheet.column["label"] == ["caf\udce9", "caf\udce9"]  # the folder of an image
    for other, byte in (
        (text.replace(b",2", b",\x80"), "80"),
        (text.replace(b"b/1.png,caf\xe9", b"b/1.png,caf\xe8"), "e8"),
    ):
        with pytest.raises(LikewiseError, match=rf"line 3 holds the byte 0x{byte}"):
            read_csv(write("t.csv", other))


def test_binary_columns_of_parquet_are_text_in_any_bytes(tmp_path):
    columns = {
        "a": pa.array([b"\xff", None]),
        "b": pa.array([b"x", b"y"], pa.large_binary()),
        "c": pa.array([b"ab", b"c\x80"], pa.binary(2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read_parquet(str(tmp_path / "t.parquet")).column == {
        "a": ["\udcff", None],
        "b": ["x", "y"],
        "c": ["ab", "c\udc80"],
    }
