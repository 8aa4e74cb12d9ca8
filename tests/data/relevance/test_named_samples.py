"""Names in files of pairs: training samples, samples of other splits, and names that nobody has."""

import numpy as np
import pytest
import torch
from likewise.types import LikewiseError

from likewise.data.relevance._named_samples import check_unique, look_up, pair_keys, positions, read_named

NAMES, OTHERS = ("a.png", "b.png", "c.png"), ("test.png",)


def test_positions_and_a_note_about_lines_of_other_splits(write):
    sheet = read_named("X", write("p.csv", "a,b\na.png,c.png\ntest.png,a.png\n c.png ,b.png\n"))
    found, rows, note = positions(sheet, ("a", "b"), NAMES, OTHERS)
    assert found.tolist() == [[0, 2], [2, 1]] and rows.tolist() == [0, 2]
    assert note == "X: 1 of 3 lines of p.csv name samples that do not train; they are ignored"
    sheet = read_named("X", write("p.csv", "a,b\na.png,c.png\n"))
    assert positions(sheet, ("a", "b"), NAMES, OTHERS)[2] == ""


def test_row_numbers_are_names_of_features(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [7, 9], "b": [8, 7]}), tmp_path / "p.parquet")
    sheet = read_named("X", str(tmp_path / "p.parquet"))
    assert positions(sheet, ("a", "b"), ("7", "8", "9"), ())[0].tolist() == [[0, 1], [2, 0]]


def test_row_numbers_with_a_decimal_point(write):
    sheet = read_named("X", write("p.csv", "a,b\n7.0,8.0\n9,7.00\n"))
    assert positions(sheet, ("a", "b"), ("7", "8", "9"), ())[0].tolist() == [[0, 1], [2, 0]]
    with pytest.raises(LikewiseError, match=r"the data has no sample '7\.5'"):
        positions(read_named("X", write("p.csv", "a,b\n7.5,8\n")), ("a", "b"), ("7", "8", "9"), ())
    sheet = read_named("X", write("p.csv", "a,b\n7.0,8\n"))
    assert positions(sheet, ("a", "b"), ("7.0", "7", "8"), ())[0].tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\na.png,d.png\n", r"no sample 'd\.png', which p\.csv line 2 names; did you mean"),
        ("a,b\na.png,b.png\nb.png,b.png\n", r"got 'b\.png' twice or more in p\.csv line 3"),
        ("a,b\na.png,test.png\n", r"no line of p\.csv names samples of the training, or"),
        ("a,c\na.png,b.png\n", r"the column 'b' is missing from p\.csv"),
    ],
)
def test_bad_files_are_explained(write, content, message):
    with pytest.raises(LikewiseError, match=message):
        positions(read_named("X", write("p.csv", content)), ("a", "b"), NAMES, OTHERS)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(LikewiseError, match=r"no file '.*none\.csv'"):
        read_named("X", str(tmp_path / "none.csv"))
    with pytest.raises(LikewiseError, match=r"table, got 'pairs\.txt'"):
        read_named("X", "pairs.txt")


def test_a_name_of_two_samples_is_refused(write):
    sheet = read_named("X", write("p.csv", "a,b\na.png,b.png\n"))
    names = ("a.png", "b.png", "b.png")
    with pytest.raises(LikewiseError, match=r"'b\.png' in p\.csv line 2 belongs to several"):
        positions(sheet, ("a", "b"), names, ())
    check_unique(sheet, [["a.png"]], names)


def test_look_up_is_that_of_a_dictionary():
    rng, ids = np.random.default_rng(0), 30
    pairs = rng.integers(0, ids, (80, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    keys, first = np.unique(pair_keys(pairs, ids), return_index=True)
    value = rng.random(len(keys)).astype(np.float32)
    known = {frozenset(pairs[at].tolist()): float(v) for at, v in zip(first, value)}
    a, b = torch.randint(0, ids, (17,)), torch.randint(0, ids, (23,))
    found = look_up(torch.as_tensor(keys), torch.as_tensor(value), a, b, ids, 0.25)
    expected = [[1.0 if i == j else known.get(frozenset((int(i), int(j))), 0.25) for j in b] for i in a]
    assert torch.equal(found, torch.tensor(expected))
