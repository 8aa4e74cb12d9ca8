import itertools

import pytest
import torch
from likewise.relevance import ListedPairs
from likewise.types import LikewiseError

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
    assert {one.device.type for one in relevance.to("meta").buffers()} == {"meta"}


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
