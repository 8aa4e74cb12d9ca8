import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from likewise.types import LikewiseError
from safetensors.torch import save_file

from likewise.data.features import from_arrays, read_embeddings, read_features

X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def npz(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "f.npz", **arrays)
        return str(tmp_path / "f.npz")

    return save


def test_npz_with_all_columns(npz, tmp_path):
    items = read_features(
        npz(
            x=X,
            label=np.array(["b", "a", "b"]),
            split=np.array(["train", "test", ""]),
            query=np.array([True, False, False]),
            gallery=np.array([0, 1, 1]),
            group=np.array([4, -1, 4]),
            camera=np.array([2, -1, 1]),
            junk=np.array([0, 0, 1]),
            class_name=np.array(["Bee", "Ant", "Bee"]),
            path=np.array(["1.png", "2.png", "3.png"]),
            mean=np.zeros(2),
            epoch=np.array(3),
        )
    )
    assert items.name == "f"
    assert items.x.dtype == np.float32
    assert items.x.tolist() == X.tolist()
    assert items.y.tolist() == [1, 0, 1]
    assert items.class_name == ("Ant", "Bee")
    assert items.split.tolist() == ["train", "test", ""]
    assert items.query.tolist() == [True, False, False]
    assert items.gallery.tolist() == [False, True, True]
    assert items.group.tolist() == [4, -1, 4]
    assert items.camera.tolist() == ["2", "", "1"]
    assert items.junk.tolist() == [False, False, True]
    assert items.path == ("1.png", "2.png", "3.png")
    assert items.root == str(tmp_path)


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int64, np.uint8, bool])
def test_numbers_become_float32(npz, kind):
    items = read_features(npz(x=X.astype(kind), y=[0, 1, 1]))
    assert items.x.dtype == np.float32
    np.testing.assert_array_equal(items.x, X.astype(kind).astype(np.float32))


def test_class_names_once_per_class(npz):
    by_place = read_features(npz(x=X, y=[4, 1, 4], class_name=np.array(["a", "b", "c", "d", "e"])))
    assert (by_place.class_name, by_place.y.tolist()) == (("b", "e"), [1, 0, 1])
    by_order = read_features(npz(x=X, y=["10", "9", "10"], class_name=np.array(["nine", "ten"])))
    assert (by_order.class_name, by_order.y.tolist()) == (("nine", "ten"), [1, 0, 1])
    with pytest.raises(LikewiseError, match=r"per row \(3\) or per class \(2\), got 1"):
        read_features(npz(x=X, y=[10, 9, 10], class_name=np.array(["nine"])))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"emb": X, "label": [0, 1, 1]}, r"f\.npz must hold the vectors \(N, F\) under the name x, got: emb, label"),
        ({"x": X, "z": X, "label": [0, 1, 1]}, r"both x and z"),
        ({"x": X, "tags": [0, 1, 1]}, r"must hold the labels as label or y, got: tags"),
        ({"x": X, "label": [0, 1, 1], "y": [0, 1, 1]}, r"has both label and y"),
        ({"x": X, "label": [0, 1]}, r"x of f\.npz has 3 rows, but label has 2; make them agree"),
        ({"x": X, "label": [0, 1, 1], "query": [1]}, r"x of f\.npz has 3 rows, but query has 1"),
        ({"x": X, "label": [[0], [1], [1]]}, r"label of f\.npz must have the shape \(N,\), got \(3, 1\)"),
        ({"x": X, "label": [0, 1.5, 1]}, r"a whole number or a word, got 1\.5 in f\.npz row 2"),
        ({"x": X[0], "label": [0, 1]}, r"must have the shape \(N, F\), one row per sample, got \(2,\)"),
        ({"x": X[None], "label": [0]}, r"must have the shape \(N, F\), one row per sample, got \(1, 3, 2\)"),
        ({"x": X[:0], "label": []}, r"must have the shape \(N, F\), one row per sample, got \(0, 2\)"),
        ({"x": X.astype(str), "label": [0, 1, 1]}, r"x of f\.npz must be numbers, got the type <U"),
        ({"x": X.astype(complex), "label": [0, 1, 1]}, r"x of f\.npz must be numbers, got the type complex128"),
        ({"x": X.astype(object), "label": [0, 1, 1]}, r"array 'x' of f\.npz holds Python objects"),
        ({"x": X, "label": np.array(["a", None, 3], object)}, r"the array 'label' of f\.npz holds Python objects"),
        ({"x": X, "label": [0, 1, 1], "splt": ["", "", ""]}, r"has a column 'splt'; did you mean 'split'"),
        ({"x": X, "label": [0, 1, 1], "split": ["dev", "", ""]}, r"split must be .* got 'dev' in f\.npz row 1"),
    ],
)
def test_bad_arrays_are_explained(npz, arrays, message):
    with pytest.raises(LikewiseError, match=message):
        read_features(npz(**arrays))


def test_rows_that_are_not_finite_are_named(npz):
    x = np.ones((20, 3))
    x[[2, 5, 7, 11], 1] = [np.nan, np.inf, -np.inf, np.nan]
    with pytest.raises(LikewiseError, match=r"4 of 20 rows \(from 0: 2, 5, 7, \.\.\.\) hold NaN"):
        read_features(npz(x=x, y=np.zeros(20, int)))


def test_overflow_is_told_from_infinity(npz):
    with pytest.raises(LikewiseError, match=r"1 of 2 rows .* too large for float32"):
        read_features(npz(x=np.array([[1.0], [1e39]]), y=[0, 1]))


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    import pickle

    (tmp_path / "f.npy").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "l.npy").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(LikewiseError, match="not unpickled"):
        read_embeddings(str(tmp_path / "f.npy"), str(tmp_path / "l.npy"))
    np.save(tmp_path / "f.npy", X)
    with pytest.raises(LikewiseError, match="not unpickled"):
        read_embeddings(str(tmp_path / "f.npy"), str(tmp_path / "l.npy"))
    np.save(tmp_path / "l.npy", np.array([Trap(), 1, 2], object), allow_pickle=True)
    with pytest.raises(LikewiseError, match="not unpickled"):
        read_embeddings(str(tmp_path / "f.npy"), str(tmp_path / "l.npy"))
    assert not (tmp_path / "sprung").exists()


def test_broken_files_are_explained(tmp_path, npz):
    whole = npz(x=X, y=[0, 1, 1])
    (tmp_path / "cut.npz").write_bytes((tmp_path / "f.npz").read_bytes()[:200])
    for name, content in (("cut.npz", None), ("empty.npz", b""), ("empty.npy", b"")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(LikewiseError, match=f"{name} cannot be read as NumPy data"):
            read_embeddings(str(tmp_path / name))
    np.save(tmp_path / "one.npy", X)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(LikewiseError, match=r"one\.npz must be a \.npz archive"):
        read_features(str(tmp_path / "one.npz"))
    with pytest.raises(LikewiseError, match="there is no file"):
        read_features(whole + "x")


def test_npy_with_labels_files(tmp_path, write):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "l.npy", np.array([7, 3, 7]))
    csv = write("l.csv", "label,split\nb,train\na,test\nb,test\n")
    txt = write("l.txt", "b\na\nb\n")
    for labels in (str(tmp_path / "l.npy"), csv, txt):
        items = read_embeddings(str(tmp_path / "x.npy"), labels)
        assert items.y.tolist() == [1, 0, 1]
        assert items.x.tolist() == X.tolist()
    assert read_embeddings(str(tmp_path / "x.npy"), csv).split.tolist() == ["train", "test", "test"]


def test_a_labels_file_stands_above_labels_of_their_own(write, npz):
    """So that a corrected table can be used; what the file says besides labels stays."""
    own = {"label": [0, 1, 1], "class_name": ["p", "q", "q"], "label_clean": [0, 1, 0]}
    file = npz(x=X, split=["train", "test", "test"], path=["1.jpg", "2.jpg", "3.jpg"], **own)
    items = read_embeddings(file, write("l.txt", "new\nold\nold\n"))
    assert [items.class_name[y] for y in items.y] == ["new", "old", "old"] and items.y_clean is None
    assert items.split.tolist() == ["train", "test", "test"] and items.path == ("1.jpg", "2.jpg", "3.jpg")
    items = read_embeddings(file, write("l.csv", "label,split,row\nc,val,2\na,train,0\nb,test,1\n"))
    assert [items.class_name[y] for y in items.y] == ["a", "b", "c"] and items.split.tolist() == [
        "train",
        "test",
        "val",
    ]
    for rows in ("312", "001", "02 "):  # from 1, twice, or missing: the order of the lines may be another one
        lines = "".join(f"c{row},{row}\n" for row in rows)
        with pytest.raises(LikewiseError, match=r"row of l\.csv must hold .* 0 to 2"):
            read_embeddings(file, write("l.csv", f"label,row\n{lines}"))


def test_bad_labels_files_are_explained(tmp_path, write, npz, refused):
    np.save(tmp_path / "x.npy", X)
    x = str(tmp_path / "x.npy")
    refused(
        (lambda: read_embeddings(x), r"x\.npy must hold the labels"),
        (lambda: read_embeddings(x, write("l.txt", "a\nb\n")), r"x\.npy has 3 rows and l\.txt has 2"),
        (lambda: read_embeddings(x, write("l.txt", "a\n\nb\n")), r"it is empty in l\.txt line 2"),
        (lambda: read_embeddings(x, write("l.csv", "class\na\nb\nc\n")), "'label' is missing from l.csv"),
        (lambda: read_embeddings(x, write("l.json", "[]")), r"labels are read from .* got 'l\.json'"),
        (lambda: read_embeddings(x, str(tmp_path / "gone.npy")), "labels: there is no file"),
    )
    named = npz(x=X, label=[0, 1, 1], path=["a/1.jpg", "a/2.jpg", "b/3.jpg"])
    with pytest.raises(
        LikewiseError,
        match=r"line 3 must be a label of 2\.jpg, row 1 of .* got one of 3\.jpg",
    ):
        read_embeddings(named, write("l.csv", "path,label\n/new/a/1.jpg,x\n/new/b/3.jpg,y\n/new/a/2.jpg,x\n"))
    with pytest.raises(LikewiseError, match=r"embeddings are read from .*, got 'l\.txt'"):
        read_embeddings(write("l.txt", "a\n"))


def test_safetensors(tmp_path, write):
    file = str(tmp_path / "f.safetensors")
    save_file({"z": torch.from_numpy(X).bfloat16(), "y": torch.tensor([5, 2, 5])}, file)
    items = read_embeddings(file)
    assert (items.x.tolist(), items.y.tolist(), items.class_name) == (X.tolist(), [1, 0, 1], ("2", "5"))
    with pytest.raises(LikewiseError, match=r"bad\.safetensors is not a readable"):
        read_embeddings(write("bad.safetensors", "nothing"))


@pytest.mark.parametrize("fixed", [True, False])
def test_parquet(tmp_path, fixed):
    kind = pa.list_(pa.float64(), 2) if fixed else pa.list_(pa.float64())
    table = pa.table({"x": pa.array(X.tolist(), kind), "label": ["b", "a", "b"], "split": ["train", "test", None]})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=2)
    items = read_features(str(tmp_path / "f.parquet"))
    assert items.x.tolist() == X.tolist()
    assert items.x.dtype == np.float32
    assert items.y.tolist() == [1, 0, 1]
    assert items.split.tolist() == ["train", "test", ""]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0, 2.0], [3.0]], r"the same length, but f\.parquet has 2 numbers in row 1 and 1 in row 2"),
        ([[1.0, 2.0], None], r"2 numbers in row 1 and nothing in row 2"),
        ([1.0, 2.0], r"the column 'x' of f\.parquet must hold lists of numbers, got double"),
        ([["a"], ["b"]], r"x of f\.parquet must be numbers"),
        ([[1.0, None], [1.0, 2.0]], r"1 of 2 rows \(from 0: 0\) hold NaN"),
    ],
)
def test_bad_parquet_is_explained(tmp_path, x, message):
    pq.write_table(pa.table({"x": x, "label": [0, 1]}), tmp_path / "f.parquet")
    with pytest.raises(LikewiseError, match=message):
        read_features(str(tmp_path / "f.parquet"))


def test_parquet_without_labels(tmp_path, write):
    pq.write_table(pa.table({"x": X.tolist()}), tmp_path / "f.parquet")
    with pytest.raises(LikewiseError, match="must hold the labels"):
        read_features(str(tmp_path / "f.parquet"))
    assert read_embeddings(str(tmp_path / "f.parquet"), write("l.txt", "a\nb\na\n")).y.tolist() == [0, 1, 0]


def test_parquet_of_float32_is_writable(tmp_path):
    """Torch warns of arrays that are not."""
    x = pa.array(X.tolist(), pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"x": x, "label": ["b", "a", "b"]}), tmp_path / "f.parquet")
    items = read_features(str(tmp_path / "f.parquet"))
    assert items.x.flags.writeable and items.x.tolist() == X.tolist()


def test_a_large_array_stays_on_disk(tmp_path):
    np.save(tmp_path / "f.npy", X.astype(np.float32))
    np.save(tmp_path / "l.npy", np.arange(len(X)))
    items = read_embeddings(str(tmp_path / "f.npy"), str(tmp_path / "l.npy"))
    assert isinstance(items.x, np.memmap) or isinstance(items.x.base, np.memmap)


def test_whatever_byte_of_a_compressed_file_is_damaged_it_is_told(tmp_path):
    np.savez_compressed(tmp_path / "z.npz", x=np.arange(60.0).reshape(20, 3), label=np.arange(20) % 4)
    whole, refused = (tmp_path / "z.npz").read_bytes(), 0
    for at in range(0, len(whole), 3):
        (tmp_path / "z.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 37]) + whole[at + 1 :])
        try:
            read_features(str(tmp_path / "z.npz"))
        except LikewiseError:  # any other error fails the test
            refused += 1
    assert refused > len(whole) // 10


def test_arrays_are_read_as_a_file_with_them_is(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(4, 3)), np.array([10, 9, 10, -1])
    np.savez(tmp_path / "z.npz", x=x, label=y)
    want = read_embeddings(str(tmp_path / "z.npz"))
    for arrays in ((x, y), (torch.as_tensor(x), torch.as_tensor(y)), (x.tolist(), y.astype(str))):
        items = from_arrays(*arrays)
        assert np.array_equal(items.x, want.x) and items.x.dtype == np.float32
        assert items.y.tolist() == want.y.tolist() == [2, 1, 2, 0] and items.class_name == ("-1", "9", "10")
    assert from_arrays(torch.ones(2, 1, dtype=torch.bfloat16), [0, 1]).x.tolist() == [[1.0], [1.0]]
    with pytest.raises(LikewiseError, match="has 4 rows, but label has 3"):
        from_arrays(x, y[:3])
