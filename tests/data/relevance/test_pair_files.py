"""Relevance from files of pairs: values, judgements, and the names of samples."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from likewise.config import Train
from likewise.relevance import JudgedPairs, ListedPairs
from likewise.types import LikewiseError

from likewise.data.relevance._named_samples import check_unique, look_up, pair_keys, positions, read_named
from likewise.learn.training.fit import train
from likewise.testing import check_relevance

NAMES = ("a.png", "b.png", "c.png", "d.png")
LINES = "a,b,value\nb.png,a.png,0.75\nc.png,d.png,0.25\na.png,test.png,1\na.png,b.png,0.75\n"


@pytest.fixture
def file(write):
    return write("pairs.csv", LINES)


def test_values_are_symmetric_and_unlisted_pairs_are_0(file):
    relevance = ListedPairs(file, NAMES, other_names=("test.png",))
    expected = [[1, 0.75, 0, 0], [0.75, 1, 0, 0], [0, 0, 1, 0.25], [0, 0, 0.25, 1]]
    assert relevance(torch.arange(4), torch.arange(4)).tolist() == expected
    assert relevance.by == "sample" and relevance.ids == 4 and len(relevance.keys) == 2
    assert "1 of 4 lines of pairs.csv name samples that do not train" in relevance.note
    pairs = relevance.pairs(torch.tensor([1]), torch.arange(4))
    assert pairs.pos.tolist() == [[True, True, False, False]] and pairs.neg.tolist() == [[False, False, True, True]]


def test_unlisted_pairs_may_be_unknown(file):
    relevance = ListedPairs(file, NAMES, unlisted=None, other_names=("test.png",))
    assert relevance(torch.tensor([0]), torch.arange(4)).isnan().tolist() == [[False, False, True, True]]
    pairs = relevance.pairs(torch.tensor([0]), torch.arange(4))
    assert not pairs.pos[0, 2:].any() and not pairs.neg[0, 2:].any()


@pytest.mark.parametrize("unlisted", [0.0, 0.3, None])
def test_the_contract(file, unlisted):
    check_relevance(lambda: ListedPairs(file, NAMES, unlisted=unlisted, other_names=("test.png",)))


def test_related_samples(file):
    start, found = ListedPairs(file, NAMES, other_names=("test.png",)).related()
    assert [found[a:b].tolist() for a, b in itertools.pairwise(start)] == [[1], [0], [], []]
    start, found = ListedPairs(file, NAMES, other_names=("test.png",), threshold=0.2).related()
    assert [found[a:b].tolist() for a, b in itertools.pairwise(start)] == [[1], [0], [3], [2]]


def test_memory_grows_with_the_lines(write, largest_tensor):
    names = tuple(str(n) for n in range(5000))
    file = write("p.csv", "a,b,value\n" + "".join(f"{n},{n + 1},0.5\n" for n in range(100)))
    relevance = ListedPairs(file, names)
    assert sum(one.numel() for one in relevance.buffers()) == 200
    y = torch.arange(50)
    assert largest_tensor(lambda: relevance(y, y)) <= 2500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,value\na.png,b.png,1.5\n", r"value must be .*, got 1\.5 in p\.csv line 2"),
        ("a,b,value\na.png,b.png,\n", r"value must be a number, got '' in p\.csv line 2"),
        ("a,b,value\na.png,b.png,nan\n", r"value must be from 0 to 1, got nan in p\.csv line 2"),
        ("a,b,value\na.png,b.png,1\nb.png,a.png,0\n", r"p\.csv line 2 and line 3 differ"),
        ("a,b\na.png,b.png\n", "the column 'value' is missing"),
        ("a,b,value\na.png,x.png,1\n", r"no sample 'x\.png'"),
    ],
)
def test_bad_files_are_explained(write, content, message):
    with pytest.raises(LikewiseError, match=message):
        ListedPairs(write("p.csv", content), NAMES)


def test_bad_arguments(file):
    with pytest.raises(LikewiseError, match="below the threshold of 0.5, .* got 0.5"):
        ListedPairs(file, NAMES, unlisted=0.5)


JUDGED = (
    "a,b,same\na.png,b.png,1\nb.png,a.png,Yes\na.png,b.png,no\nc.png,d.png,FALSE\na.png,c.png,true\nc.png,a.png,0\n"
    "b.png,test.png,1\n"
)


@pytest.fixture
def make(write):
    file = write("judged.csv", JUDGED)
    return lambda **settings: JudgedPairs(file, NAMES, other_names=("test.png",), **settings)


def test_judgements_are_averaged_and_other_pairs_are_not_known(make):
    value = make()(torch.arange(4), torch.arange(4))
    assert value[0, 1] == value[1, 0] == pytest.approx(2 / 3) and value[2, 3] == 0 and value[0, 2] == 0.5
    assert value[0, 3].isnan() and value[1, 2].isnan() and value.diagonal().eq(1).all()
    assert "1 of 7 lines" in make().note


def test_the_majority_decides(make):
    pairs = make().pairs(torch.arange(4), torch.arange(4))
    assert pairs.pos[0].tolist() == [True, True, True, False] and pairs.neg[0].tolist() == [False] * 4
    assert pairs.neg[2].tolist() == [False, False, False, True]
    start, found = make().related()
    assert [found[a:b].tolist() for a, b in itertools.pairwise(start)] == [[1, 2], [0], [0], []]
    strict = make(threshold=0.6).pairs(torch.arange(4), torch.arange(4))
    assert strict.pos[0].tolist() == [True, True, False, False] and strict.neg[0].tolist() == [
        False,
        False,
        True,
        False,
    ]


def test_the_contract_of_judged_pairs(make):
    check_relevance(make)


def test_bad_judgements(write):
    with pytest.raises(LikewiseError, match=r"got 'maybe' in p\.csv line 2"):
        JudgedPairs(write("p.csv", "a,b,same\na.png,b.png,Maybe\n"), NAMES)
    with pytest.raises(LikewiseError, match="column 'same' is missing"):
        JudgedPairs(write("p.csv", "a,b,value\na.png,b.png,1\n"), NAMES)


def test_a_run_learns_from_judged_pairs(settings, write):
    """Rows 0 to 23 train; row 200 is a test row. Names of features are row numbers."""
    lines = "".join(f"{a},{b},{int(a // 12 == b // 12)}\n" for a in range(24) for b in range(a))
    file, said = write("judged.csv", f"a,b,same\n{lines}0,200,0\n"), []
    run = train(
        Train(**settings | {"relevance": f"JudgedPairs(file={file!r})", "steps": 3, "evaluate": False}), say=said.append
    )
    assert (run.path / "done").exists()
    assert "JudgedPairs: 1 of 277 lines of judged.csv name samples that do not train; they are ignored" in said
    with pytest.raises(LikewiseError, match="no sample '999', which bad.csv line 2"):
        bad = write("bad.csv", "a,b,same\n999,1,1\n")
        train(Train(**settings | {"relevance": f"JudgedPairs(file={bad!r})", "steps": 3, "out": f"{settings['out']}2"}))


def test_positions_and_a_note_about_lines_of_other_splits(write):
    sheet = read_named("X", write("p.csv", "a,b\na.png,c.png\ntest.png,a.png\n c.png ,b.png\n"))
    found, rows, note = positions(sheet, ("a", "b"), NAMES[:3], ("test.png",))
    assert found.tolist() == [[0, 2], [2, 1]] and rows.tolist() == [0, 2]
    assert note == "X: 1 of 3 lines of p.csv name samples that do not train; they are ignored"
    sheet = read_named("X", write("p.csv", "a,b\na.png,c.png\n"))
    assert positions(sheet, ("a", "b"), NAMES[:3], ("test.png",))[2] == ""


def test_row_numbers_are_names_of_features(tmp_path):
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
def test_wrong_names_of_samples(write, content, message):
    with pytest.raises(LikewiseError, match=message):
        positions(read_named("X", write("p.csv", content)), ("a", "b"), NAMES[:3], ("test.png",))


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
