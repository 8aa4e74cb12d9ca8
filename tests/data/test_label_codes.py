"""Columns by code: many labels are read without a Python object per row, with the same result and the same errors."""

import dataclasses

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.data import features, tabular
from likewise.data.features import read_embeddings
from likewise.data.tabular import Codes, as_codes, distinct_cells, distinct_pairs, read_coded_csv

RNG = np.random.default_rng(0)


@pytest.fixture
def coded(monkeypatch):
    """Columns of four rows are many."""
    for module in (tabular, features):
        monkeypatch.setattr(module, "MIN_CODED_ROWS", 4)


def test_codes_by_hand():
    column = Codes.of(np.array([4, 0, 4, 2]), ["a", "never", "c", "never", "e"])
    assert column.code.tolist() == [2, 0, 2, 1] and column.cells == ["a", "c", "e"]
    assert list(column) == ["e", "a", "e", "c"] and column[1] == "a" and column[1:3] == ["a", "e"] and len(column) == 4
    assert column.first_rows().tolist() == [1, 3, 0]
    assert list(distinct_cells(column)) == [(0, "e"), (1, "a"), (3, "c")]
    other = Codes(np.array([0, 1, 1, 0]), ["x", "y"])
    assert list(distinct_pairs(column, other)) == [(0, "e", "x"), (1, "a", "y"), (2, "e", "y"), (3, "c", "x")]
    assert list(distinct_pairs(list(column), other)) == [(0, "e", "x"), (1, "a", "y"), (2, "e", "y"), (3, "c", "x")]
    assert column == ["e", "a", "e", "c"] and column != other and column == column.map(str)
    assert list(column.map(len)) == [1, 1, 1, 1]


def same(one, other):
    """Assert that two data sets have the same content."""
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b, field.name


TABLES = {
    "words": "label\nb\na\nb\nb\na\nc\n",
    "numbers": "label\n10\n9\n10\n-1\n9\n10\n",
    "numbers that are names": "label\n007\n7\n007\n7\n007\n007\n",
    "spaces": "label , split\n a, train\na ,train\n b,test\nb,test\na,\na,\n",
    "line ends of Windows": "label\r\nb\r\na\r\nb\r\nb\r\na\r\nc\r\n",
    "no line end": "label\nb\na\nb\nb\na\nc",
    "all columns": "label,class_name,split,query,gallery,group,camera,junk,coarse,weight,vote\n"
    + "b,Bee,test,1,shop,4,c1,0,x/y,1.5,?\na,Ant,test,0,,-1,,1,x,2,?\n" * 3,
    "the order of rows": "row,label\n5,e\n0,z\n1,z\n2,e\n4,y\n3,z\n",
    "quotes": 'label\nb\n"a, c"\nb\n"x\ny"\nb\nb\n',
    "blank lines": "label\nb\n\na\n\nb\nb\na\nb\n",
    "a byte mark": "\ufefflabel\nb\na\nb\nb\na\nc\n",
    "several": "labels\nred|dress\nred\nred|dress\nblue\nred\nred|dress\n",
    "true labels": "label,label_clean,class_name,class_name_clean\n" + "1,2,one,two\n3,3,three,three\n" * 3,
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_coded_table_is_the_same(kind, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.ones((6, 2), np.float32))
    (tmp_path / "y.csv").write_bytes(TABLES[kind].encode())
    slow = read_embeddings(str(tmp_path / "x.npy"), str(tmp_path / "y.csv"))
    for module in (tabular, features):
        monkeypatch.setattr(module, "MIN_CODED_ROWS", 2)
    plain = kind not in ("quotes", "blank lines", "a byte mark")
    assert (read_coded_csv(str(tmp_path / "y.csv")) is not None) == plain
    same(read_embeddings(str(tmp_path / "x.npy"), str(tmp_path / "y.csv")), slow)


WRONG = {
    "blank": ("label,split\na,\nb,\n,train\na,\nb,\nb,\n", r"it is empty in y\.csv line 4"),
    "another column count": ("label\na\nb,c\na\na\nb\nb\n", r"y\.csv line 3 must have 1 cells like the header, got 2"),
    "a wrong split": ("label,split\na,test\nb,test\na,tset\na,\nb,\nb,\n", r"split must be train.* got 'tset' in y\.csv line 4"),
    "a wrong flag": ("label,query\na,1\nb,0\na,1\na,0\nb,1\nb,Maybe\n", r"query must be 0, 1.* got 'maybe' in y\.csv line 7"),
    "two names of a class": (
        "label,class_name\na,A\nb,B\na,A\na,Z\nb,B\nb,B\n", r"label 'a' is 'A' in y\.csv line 2 and 'Z' in line 5"
    ),
    "two ancestors": ("label,coarse\na,x\nb,y\na,x\na,x\nb,x\nb,y\n", r"class 'b' has 'y' in y\.csv line 3 and 'x' in line 6"),
    "no label": ("klass\na\nb\na\na\nb\nb\n", r"'label' is missing from y\.csv"),
    "too few": ("label\na\nb\na\na\nb\n", r"x\.npy has 6 rows and y\.csv has 5"),
    "not UTF-8": (b"label\na\nb\na\n\xff\nb\nb\n", r"y\.csv must be UTF-8, but line 5 holds the byte 0xff"),
    "a row twice": ("label,row\na,0\nb,1\na,2\na,2\nb,4\nb,5\n", r"1 are missing \(first: 3\)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_errors_are_those_of_the_plain_reader(kind, tmp_path, monkeypatch):
    text, message = WRONG[kind]
    np.save(tmp_path / "x.npy", np.ones((6, 2), np.float32))
    (tmp_path / "y.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    found = []
    for rows in (50_000, 2):
        for module in (tabular, features):
            monkeypatch.setattr(module, "MIN_CODED_ROWS", rows)
        with pytest.raises(LikewiseError, match=message) as error:
            read_embeddings(str(tmp_path / "x.npy"), str(tmp_path / "y.csv"))
        found.append(str(error.value))
    assert found[0] == found[1]


def test_arrays_by_code(tmp_path, coded):
    x = np.ones((6, 2), np.float32)
    words = np.array(["b", "a", "b", "b", "a", "b"])
    for label in (words, np.array([7, -3, 7, 7, -3, 7]), np.array([True, False] * 3), words.astype("S1")):
        found = as_codes(label)
        assert (found is None) == (label.dtype.kind == "S")
        assert found is None or list(found) == label.tolist()
        np.savez(
            tmp_path / "z.npz", x=x, label=label, split=np.array(["train", "test"] * 3), class_name=np.array(["Ä", "B"])
        )
        items = read_embeddings(str(tmp_path / "z.npz"))
        assert items.y.tolist() == np.unique(label, return_inverse=True)[1].tolist()
        assert items.class_name == ("Ä", "B") and items.split.tolist() == ["train", "test"] * 3
    assert as_codes(np.arange(6)) is None  # all cells differ
    assert as_codes(np.array(["\udcff", "a"] * 3)) is None  # bytes that are not UTF-8
    np.savez(tmp_path / "odd.npz", x=x, label=np.array(["\udcff", "a"] * 3))
    assert read_embeddings(str(tmp_path / "odd.npz")).class_name == ("a", "\udcff")


def test_many_labels_take_little_memory(tmp_path):
    """Peak memory is far below that of a Python object per cell (50 bytes for each of several copies)."""
    import time
    import tracemalloc

    n = 300_000
    np.save(tmp_path / "x.npy", np.ones((n, 1), np.float32))
    (tmp_path / "y.csv").write_text("label\n" + "\n".join(f"shop {c}" for c in RNG.integers(0, 3000, n)) + "\n")
    started = time.monotonic()
    tracemalloc.start()
    items = read_embeddings(str(tmp_path / "x.npy"), str(tmp_path / "y.csv"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert items.classes == 3000 and time.monotonic() - started < 10
    assert peak < 60 * n  # the text, and a few arrays of codes
