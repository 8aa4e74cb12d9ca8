import dataclasses
import errno
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from likewise.types import Items, LikewiseError

from likewise.core.files import write_csv
from likewise.data import load
from likewise.data.dataset import absolute_path
from likewise.data.features import read_features
from likewise.data.images import drop
from likewise.data.table import own_columns, read_table, write_noisy, write_table

FULL = Items(
    name="t",
    y=np.array([1, 0, 2, 1]),
    class_name=("Ant, black", "b", 'quoted "c"'),
    path=("a b.png", "ö/1.png", "/abs/x.png", "a b.png"),
    split=np.array(["train", "", "val", "test"]),
    query=np.array([True, False, False, True]),
    gallery=np.array([False, False, True, True]),
    group=np.array([7, -1, 3, 7]),
    camera=np.array(["c1", "", "gate, left", "007"]),
    junk=np.array([False, True, False, False]),
    box=np.array([[0, 0, 10, 20], [np.nan] * 4, [0.1, 1 / 3, 2, 3], [1, 0, 10, 20]]),
    weight=np.array([0.1, 1, 2, 1 / 3]),
    y_clean=np.array([1, 0, 2, 0]),
    taxonomy={"Ant, black": ("animal", "insect"), "b": ("animal",), 'quoted "c"': ()},
)


def assert_same(a: Items, b: Items):
    for field in dataclasses.fields(Items):
        if field.name != "root":
            np.testing.assert_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_round_trip(tmp_path, suffix):
    file = str(tmp_path / f"t.{suffix}")
    write_table(FULL, file)
    assert_same(read_table(file), FULL)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_round_trip_of_the_least(tmp_path, suffix):
    least = Items("t", np.array([0, 1]), ("a", "b"), path=("1.png", "2.png"))
    write_table(least, str(tmp_path / f"t.{suffix}"))
    assert_same(read_table(str(tmp_path / f"t.{suffix}")), least)


def test_round_trip_of_features(tmp_path):
    features = Items("t", np.array([0, 1, 0]), ("a", "b"), x=np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    write_table(features, str(tmp_path / "t.parquet"))
    assert_same(read_features(str(tmp_path / "t.parquet")), features)
    with pytest.raises(LikewiseError, match=r"CSV file; write t\.parquet"):
        write_table(features, str(tmp_path / "t.csv"))


def test_the_column_coarse_is_the_class_tree(write):
    file = write("t.csv", "path,label,coarse\n1,x, cat / lion \n2,y,\n3,x,cat/lion\n")
    assert read_table(file).taxonomy == {"x": ("cat", "lion"), "y": ()}
    bad = write("bad.csv", "path,label,coarse\n1,x,cat\n2,y,\n3,x,cat/lion\n")
    with pytest.raises(LikewiseError, match="'cat' in bad.csv line 2 and 'cat/lion' in line 4"):
        read_table(bad)


def test_a_tree_with_a_slash_in_a_name_is_not_written(tmp_path):
    items = dataclasses.replace(FULL, taxonomy={"b": ("his/hers",)})
    write_table(items, str(tmp_path / "t.csv"))
    assert read_table(str(tmp_path / "t.csv")).taxonomy is None


def test_paths_start_from_the_table_or_root(write, tmp_path, monkeypatch):
    file = write("in/t.csv", "path,label\na.png,1\n")
    assert read_table(file).root == str(tmp_path / "in")
    assert read_table(file, root="/data").root == "/data"
    monkeypatch.chdir(tmp_path / "in")
    assert read_table("t.csv").root == str(tmp_path / "in")


def test_all_columns(write):
    items = read_table(
        write(
            "t.csv",
            "label,path,split,query,gallery,group,camera,junk,box,weight,note\n"
            "b,1.png,test,1,0,c1,3,1,1 2 3 4,2,hi\na,2.png,,,,,-1,,,0,\n",
        )
    )
    assert items.name == "t"
    assert items.y.tolist() == [1, 0]
    assert items.class_name == ("a", "b")
    assert items.split.tolist() == ["test", ""]
    assert items.query.tolist() == [True, False]
    assert items.gallery.tolist() == [False, False]
    assert items.group.tolist() == [0, -1]
    assert items.camera.tolist() == ["3", ""]
    assert items.junk.tolist() == [True, False]
    assert items.box[0].tolist() == [1, 2, 3, 4]
    assert np.isnan(items.box[1]).all()
    assert items.weight.tolist() == [2, 0]


def test_parquet_types(tmp_path):
    columns = {
        "path": pa.array(["1", "2"]).dictionary_encode(),
        "label": pa.array([2**63 + 1, 5], pa.uint64()),
        "query": [True, False],
        "split": pa.array(["train", None]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    items = read_table(str(tmp_path / "t.parquet"))
    assert items.class_name == ("5", str(2**63 + 1))
    assert items.query.tolist() == [True, False]
    assert items.split.tolist() == ["train", ""]
    pq.write_table(pa.table({"path": ["1", None], "label": [1, 2]}), tmp_path / "n.parquet")
    with pytest.raises(LikewiseError, match=r"path .* got None in n\.parquet row 2"):
        read_table(str(tmp_path / "n.parquet"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,lable\na,1\n", r"the column 'label' is missing from t\.csv; it has: path, lable; did you mean 'lable'"),
        ("thing,label\na,1\n", r"the column 'path' is missing from t\.csv; it has: thing, label; add it, or rename"),
        ("path,label\na,1\n ,2\n", r"path must be a file name, got ' ' in t\.csv line 3"),
        ("path,label\na\0b,1\n", r"line 2 holds a zero byte; save it as UTF-8"),
        ("path,label\na,1\nb,2\n./a,1\n", r"listed once, but '\./a' is in t\.csv line 2 and in line 4"),
        ("path,label\na,1\nb,2\na,2\n", r"'a' has two different labels, in t\.csv line 2 and in line 4"),
        ("path,label,box\na,1,\na,1,\n", r"'a' is in t\.csv line 2 and in line 3"),
        ('path,label,box\na,1,0 0 1 1\na,1,"0,0,1,1"\n', r"'a' is in t\.csv line 2 and in line 3"),
    ],
)
def test_bad_tables_are_explained(write, content, message):
    with pytest.raises(LikewiseError, match=message):
        read_table(write("t.csv", content))


def test_two_boxes_of_a_picture_are_two_rows(write):
    assert len(read_table(write("t.csv", "path,label,box\na,1,0 0 1 1\na,2,0 0 2 2\na,2,\n"))) == 3


def test_other_files_are_refused(tmp_path):
    with pytest.raises(LikewiseError, match=r"a \.csv or \.parquet file, got 't\.xlsx'"):
        read_table(str(tmp_path / "t.xlsx"))
    with pytest.raises(LikewiseError, match=r"a \.csv or \.parquet file, got 't\.xlsx'"):
        write_table(FULL, str(tmp_path / "t.xlsx"))


def test_a_full_disk_leaves_the_old_table(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq, "write_table", full)
    monkeypatch.setattr("os.fsync", full)  # a CSV file is lost at the very end
    for name in ("t.csv", "t.parquet"):
        (tmp_path / name).write_text("old")
        with pytest.raises(LikewiseError, match="no space left on the disk"):
            write_table(FULL, str(tmp_path / name))
        assert (tmp_path / name).read_text() == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.csv", "t.parquet"]


def test_a_table_of_wrong_labels_can_leave_them_out(tmp_path):
    items = Items(
        "birds", np.array([0, 1, 1]), ("a", "b"), path=("0.png", "1.png", "2.png"), root=str(tmp_path),
        y_clean=np.array([0, 0, 1]),
    )  # fmt: skip
    write_noisy(items, tmp_path / "all.csv")
    whole = read_table(str(tmp_path / "all.csv"))
    assert whole.y.tolist() == [0, 1, 1] and whole.y_clean.tolist() == [0, 0, 1] and whole.path == items.path
    write_noisy(items, tmp_path / "right.csv", drop_wrong=True)
    right = read_table(str(tmp_path / "right.csv"))
    assert right.y.tolist() == [0, 1] and right.y_clean is None and right.path == ("0.png", "2.png")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_optional_column_without_a_value_counts_as_missing(tmp_path, suffix):
    names = (
        "split",
        "query",
        "gallery",
        "group",
        "camera",
        "weight",
        "junk",
        "coarse",
        "box",
        "class_name",
        "label_clean",
    )
    columns = {"path": ["1.png", "2.png"], "label": ["a", "b"]} | {name: ["", " "] for name in names}
    file = str(tmp_path / f"t.{suffix}")
    if suffix == "csv":
        write_csv(tmp_path / "t.csv", tuple(columns), zip(*columns.values(), strict=True))
    else:
        pq.write_table(pa.table(columns | {"weight": pa.array([None, None], pa.float64())}), file)
    assert_same(read_table(file), Items("t", np.array([0, 1]), ("a", "b"), path=("1.png", "2.png")))


def test_a_split_that_some_rows_have_leaves_the_others_out(write):
    assert read_table(write("t.csv", "path,label,split\n1,a,train\n2,a,\n")).split.tolist() == ["train", ""]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("image,class", "path=image&label=class"),
        ("id,file_name,category", "path=file_name&label=category"),
        ("filename,target,label", "path=filename"),
        ("path,Species", "label=Species"),
        ("Path,Label", "path=Path&label=Label"),
        ("image,file_path,class_name", "path=file_path&label=class_name"),
    ],
)
def test_a_table_with_other_names_says_how_to_read_it(write, head, words, monkeypatch):
    lines = (",".join(f"{row}{name}" for name in head.split(",")) for row in range(4))
    file = write("photos.csv", "\n".join([head, *lines]))
    with pytest.raises(LikewiseError) as caught:
        load(file)
    assert f'write DATA as "photos.csv?{words}"' in str(caught.value)
    items = load(f"{file}?{words}")
    assert len(items) == 4 and items.root == os.path.dirname(file)
    monkeypatch.chdir(os.path.dirname(file))
    assert absolute_path(f"photos.csv?{words}") == f"{file}?{words}"


def test_named_columns_replace_those_of_the_same_name(write):
    file = write("t.csv", "path,label,genus,half,note\n1.png,a,x,train,hello\n2.png,b,x,test,\n")
    items = load(f"{file}?label=genus&split=half")
    assert items.class_name == ("x",) and items.split.tolist() == ["train", "test"]
    for words, message in (
        ("label=genius", "has no column 'genius' for label; did you mean 'genus'"),
        ("laabel=genus", "after [?] write NAME=COLUMN.* got 'laabel=genus'; did you mean 'label'"),
        ("label", "got 'label'"),
    ):
        with pytest.raises(LikewiseError, match=message):
            load(f"{file}?{words}")
    with pytest.raises(LikewiseError, match="neither a known name|cannot be read"):
        load("no such table.csv?label=genus")


def test_own_columns_are_all_columns_of_the_table(write):
    """Row 1 cannot be decoded, so it is no row of the items; `label` is the name that DATA gives to the column class."""
    file = write(
        "t.csv", "photo,class,label,price,note\na.png,wren,7,1.50,\nb.png,wren,8,2,x\nc.png,tit,9,, two words \n"
    )
    data = f"{file}?path=photo&label=class"
    items = dataclasses.replace(drop(load(data), [1]), skipped=((1, "b.png"),))
    assert own_columns(data, items) == {
        "path": ["a.png", "c.png"], "label": ["wren", "tit"], "own_label": ["7", "9"], "price": ["1.50", ""],
        "note": ["", " two words "],
    }  # fmt: skip
    assert own_columns(os.path.dirname(file), items) is None
    with pytest.raises(LikewiseError, match="must not change while it is read"):
        own_columns(data, dataclasses.replace(items, skipped=()))


def test_own_columns_of_parquet_are_text(tmp_path):
    cells = {
        "path": ["a", "b"],
        "labels": [["x", "y"], ["x"]],
        "n": [1.5, None],
        "k": [3, 4],
        "at": [{"x": 1}, {"x": 2}],
    }
    pq.write_table(pa.table(cells), tmp_path / "t.parquet")
    found = own_columns(str(tmp_path / "t.parquet"), load(str(tmp_path / "t.parquet")))
    assert found == {"path": ["a", "b"], "labels": ["x|y", "x"], "n": ["1.5", ""], "k": ["3", "4"]}
