"""Folders of shards: what is written comes back, and every kind of damage is an error that names the shard."""

import json
import zlib

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.core.vectors import Vectors
from likewise.data import load
from likewise.data.features import read_embeddings
from likewise.data.shards import ShardIndex, ShardWriter, encode, is_shards, open_shards, read_index, write_shards

X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
Y = np.array([2, 0, 1, 1, 0, 2, 2, 1, 0, 1])
NAMES = ["bee", "ant", "cat"]


@pytest.fixture
def folder(tmp_path):
    """Ten rows in shards of four, as float32."""
    write_shards(tmp_path / "z", iter([X[:5], X[5:]]), Y, NAMES, width=3, dtype="float32", shard_rows=4)
    return tmp_path / "z"


def change_index(folder, change):
    """Change shards.json by hand; checksums are made to fit unless `change` does otherwise."""
    told = json.loads((folder / "shards.json").read_text())
    for shard in told["shards"].values():
        for name in shard["crc32"]:
            if (folder / name).exists():
                shard["crc32"][name] = f"{zlib.crc32((folder / name).read_bytes()):08x}"
    change(told)
    (folder / "shards.json").write_text(json.dumps(told))


def test_round_trip(folder):
    assert sorted(file.name for file in folder.iterdir()) == [
        "classes.json", "shards.json", "y-00000.npz", "y-00001.npz", "y-00002.npz", "z-00000.npy", "z-00001.npy", "z-00002.npy",
    ]  # fmt: skip
    assert [len(np.load(folder / f"z-0000{n}.npy")) for n in range(3)] == [4, 4, 2]
    for items in (read_embeddings(str(folder)), load(str(folder))):
        np.testing.assert_array_equal(items.x, X)
        assert items.y.tolist() == Y.tolist() and items.class_name == tuple(NAMES) and items.name == "z"


def test_vectors_stay_on_disk_and_are_the_same(folder, monkeypatch):
    monkeypatch.setattr("likewise.data.features.MAX_LOADED_BYTES", 119)
    items = read_embeddings(str(folder))
    assert isinstance(items.x, Vectors)
    np.testing.assert_array_equal(items.x[[9, 3, 4]], X[[9, 3, 4]])
    monkeypatch.setattr("likewise.data.features.MAX_LOADED_BYTES", 120)
    assert isinstance(read_embeddings(str(folder)).x, np.ndarray)


def test_precision_by_hand():
    x = np.array([[1.0, -0.5, 0.25], [0.0, 0.0, 0.0], [127.0, 1.0, 0.4]], np.float32)
    stored, scale = encode(x, "int8", "z", 0)
    assert stored.tolist() == [[127, -64, 32], [0, 0, 0], [127, 1, 0]]  # -63.5 and 31.75 round to even, to the next
    assert scale.tolist() == pytest.approx([1 / 127, 1, 1])
    half, none = encode(np.array([[1 / 3]], np.float32), "float16", "z", 0)
    assert none is None and half.dtype == np.float16 and float(half[0, 0]) == 1365 / 4096


@pytest.mark.parametrize(("dtype", "error"), [("float32", 0), ("float16", 2**-11), ("int8", 0.5 / 127)])
def test_number_types(tmp_path, dtype, error):
    write_shards(tmp_path / "z", iter([X]), Y, NAMES, width=3, dtype=dtype, shard_rows=4)
    found = read_embeddings(str(tmp_path / "z")).x
    largest = np.abs(X).max(1, keepdims=True) if dtype == "int8" else np.abs(X)
    assert (np.abs(found - X) <= error * largest * 1.0001).all()
    assert (tmp_path / "z" / "s-00001.npy").exists() == (dtype == "int8")
    again = tmp_path / "again"
    write_shards(again, iter([found]), Y, NAMES, width=3, dtype=dtype, shard_rows=4)
    np.testing.assert_allclose(read_embeddings(str(again)).x, found, rtol=1e-6)  # storing twice loses nothing more


def test_labels_of_a_file_replace_those_of_the_shards(folder, tmp_path):
    (tmp_path / "y.csv").write_text("label\n" + "new\nold\n" * 5)
    assert read_embeddings(str(folder), str(tmp_path / "y.csv")).class_name == ("new", "old")
    (tmp_path / "y.csv").write_text("label\n" + "new\n" * 9)
    with pytest.raises(LikewiseError, match=r"z has 10 rows and y\.csv has 9"):
        read_embeddings(str(folder), str(tmp_path / "y.csv"))


def save(folder, name, array):
    np.save(folder / name, array)


def npz(folder, name, **arrays):
    np.savez(folder / name, **arrays)


NAN = X[4:8].copy()
NAN[2, 1] = np.nan

DAMAGE = {
    "a missing shard": (lambda f: (f / "z-00001.npy").unlink(), None, r"shard z-00001\.npy of \S+ must have the file z-00001"),
    "missing labels": (lambda f: (f / "y-00001.npz").unlink(), None, r"z-00001\.npy of \S+ must have the file y-00001\.npz"),
    "half written": (lambda f: cut(f / "z-00002.npy"), None, r"shard z-00002\.npy of \S+ is damaged .*cut off: \d+ of \d+"),
    "no numpy file": (lambda f: (f / "z-00002.npy").write_bytes(b"hello world"), None, r"z-00002\.npy of \S+ is damaged"),
    "another width": (lambda f: save(f, "z-00001.npy", X[4:8, :2]), None, r"z-00001\.npy .* hold 4 rows of 3 .* got 4x2"),
    "another length": (lambda f: save(f, "z-00001.npy", X[4:7]), None, r"z-00001\.npy .* hold 4 rows of 3 .* got 3x3"),
    "another dtype": (lambda f: save(f, "z-00001.npy", X[4:8].astype("f2")), None, r"z-00001.* hold float32, got float16"),
    "columns first": (lambda f: save(f, "z-00001.npy", np.asfortranarray(X[4:8])), None, r"z-00001.* got columns first"),
    "a changed number": (lambda f: flip(f / "z-00002.npy"), False, r"z-00002\.npy of \S+ must have the CRC-32 \w+ .*, got"),
    "NaN": (lambda f: save(f, "z-00001.npy", NAN), None, r"row 2 of shard z-00001\.npy of \S+ \(row 6 of all, from 0\) holds NaN"),
    "few labels": (lambda f: npz(f, "y-00001.npz", label=Y[:3]), None, r"z-00001\.npy .* 4 entries of label in y-00001\.npz"),
    "words as labels": (lambda f: npz(f, "y-00000.npz", label=np.array(list("abcd"))), None, r"z-00000.* labels by code"),
    "a code too large": (
        lambda f: npz(f, "y-00001.npz", label=[0, 1, 3, 0]), None, r"0 to 2, .* but row 2 of shard z-00001\.npy .* has 3"
    ),
    "other columns": (lambda f: npz(f, "y-00002.npz", label=Y[8:], row=Y[8:]), None, r"z-00002\.npy .* have the columns label, got"),
    "damaged labels": (lambda f: cut(f / "y-00001.npz"), None, r"shard z-00001\.npy of \S+ is damaged \(y-00001\.npz"),
    "more classes than samples": (
        lambda f: (f / "classes.json").write_text(json.dumps({"class_name": [str(n) for n in range(11)]})), None,
        r"classes\.json has 11 classes for 10 rows \(first shard: z-00000\.npy\)",
    ),
    "no classes": (lambda f: (f / "classes.json").write_text("{}"), None, r"classes\.json must have the list class_name"),
    "not in the index": (lambda f: None, lambda t: t["shards"].pop("1"), r"must hold 3 shards, but 1 are missing \(first: z-00001"),
    "another sum of rows": (lambda f: None, lambda t: t.update(rows=11), r"must have 3 rows in shard z-00002\.npy.*, got 2"),
    "another index width": (lambda f: None, lambda t: t.update(width=4), r"z-00000\.npy .* hold 4 rows of 4 numbers, got 4x3"),
    "another index dtype": (lambda f: None, lambda t: t.update(dtype="float16"), r"z-00000\.npy .* hold float16, got float32"),
    "an unknown dtype": (lambda f: None, lambda t: t.update(dtype="int4"), r"shards\.json must have a dtype of float32, .*'int4'"),
    "no rows": (lambda f: None, lambda t: t.pop("rows"), r"shards\.json must have a whole number above 0 as rows, got None"),
    "a name with a folder": (
        lambda f: None, lambda t: t["shards"]["0"].update(vectors="../z-00000.npy"), r"plain names of files"
    ),
    "int8 without scale": (lambda f: None, lambda t: t.update(dtype="int8"), r"must have a scale .*z-00000\.npy"),
}  # fmt: skip


def cut(file):
    file.write_bytes(file.read_bytes()[:-5])


def flip(file):
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(folder, kind):
    damage, change, message = DAMAGE[kind]
    damage(folder)
    if change is not False:  # the checksums then fit, so that the damage itself is found
        change_index(folder, change or (lambda told: None))
    with pytest.raises(LikewiseError, match=message):
        read_embeddings(str(folder))


def test_a_damaged_index(folder):
    (folder / "shards.json").write_text("{")
    with pytest.raises(LikewiseError, match=r"shards\.json is damaged"):
        read_embeddings(str(folder))


def writer(folder, **changes):
    about = {"rows": 10, "width": 3, "dtype": "float32", "shard_rows": 4, "made_by": {"network": "n1"}, "shards": {}}
    return ShardWriter(folder, ShardIndex(**about | changes), {"class_name": NAMES})


def test_a_writer_continues_with_what_is_missing_or_damaged(tmp_path):
    one, y = writer(tmp_path / "z"), {"label": Y}
    assert one.missing() == [0, 1, 2]
    one.write(0, X[:4], {"label": Y[:4]})
    one.write(2, X[8:], {"label": Y[8:]})
    (tmp_path / "z" / ".z-00001.npy.1-abc.part").write_bytes(b"half")  # a killed process left it
    one = writer(tmp_path / "z")
    assert one.missing() == [1] and not list((tmp_path / "z").glob(".*"))
    one.write(1, X[4:8], {"label": Y[4:8]})
    assert writer(tmp_path / "z").missing() == []
    np.testing.assert_array_equal(np.asarray(open_shards(tmp_path / "z")[0]), X)
    flip(tmp_path / "z" / "z-00002.npy")
    cut(tmp_path / "z" / "y-00000.npz")
    one = writer(tmp_path / "z")
    assert one.missing() == [0, 2]
    for number, rows in ((0, slice(4)), (2, slice(8, 10))):
        one.write(number, X[rows], {name: column[rows] for name, column in y.items()})
    np.testing.assert_array_equal(np.asarray(open_shards(tmp_path / "z")[0]), X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"made_by": {"network": "n2"}}, r"network: n1 there, n2 now"),
        ({"made_by": {"network": "n1", "data": "d"}}, r"data: None there, d now"),
        ({"dtype": "float16"}, r"--dtype: float32 there, float16 now"),
        ({"shard_rows": 5}, r"--shard-rows: 4 there, 5 now"),
        ({"rows": 12}, r"rows: 10 there, 12 now"),
    ],
)
def test_shards_of_something_else_are_refused_and_kept(tmp_path, changes, message):
    writer(tmp_path / "z").write(0, X[:4], {"label": Y[:4]})
    before = (tmp_path / "z" / "shards.json").read_bytes()
    with pytest.raises(LikewiseError, match=message):
        writer(tmp_path / "z", **changes)
    assert (tmp_path / "z" / "shards.json").read_bytes() == before and list(read_index(tmp_path / "z").shards) == [0]


def test_what_cannot_be_written(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "photo.jpg").touch()
    with pytest.raises(LikewiseError, match="has other content"):
        writer(tmp_path / "full")
    with pytest.raises(LikewiseError, match="does not exist; create it first"):
        writer(tmp_path / "gone" / "z")
    one = writer(tmp_path / "z", dtype="float16")
    for bad, message in ((np.nan, "NaN"), (1e5, r"float16 ends at 65504: --dtype float32")):
        x = X[4:8].copy()
        x[3, 0] = bad
        with pytest.raises(LikewiseError, match=rf"row 3 of shard z-00001\.npy \(row 7 of all\) holds .*{message}"):
            one.write(1, x, {"label": Y[4:8]})
    with pytest.raises(LikewiseError, match=r"shard z-00001\.npy must hold 4 rows of 3"):
        one.write(1, X[4:7], {"label": Y[4:7]})
    assert not one.index.shards
    with pytest.raises(LikewiseError, match="a vector for each of the 10 labels"):
        write_shards(tmp_path / "few", iter([X[:9]]), Y, NAMES, width=3)
    assert not is_shards(tmp_path / "full") and not is_shards("")
