import itertools

import pytest
import torch
from likewise.config import Train
from likewise.relevance import JudgedPairs
from likewise.types import LikewiseError

from likewise.learn.training.fit import train
from likewise.testing import check_relevance

NAMES = ("a.png", "b.png", "c.png", "d.png")
LINES = (
    "a,b,same\na.png,b.png,1\nb.png,a.png,Yes\na.png,b.png,no\nc.png,d.png,FALSE\na.png,c.png,true\nc.png,a.png,0\n"
    "b.png,test.png,1\n"
)


@pytest.fixture
def make(write):
    file = write("judged.csv", LINES)
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


def test_the_contract(make):
    check_relevance(make)
    assert {one.device.type for one in make().to("meta").buffers()} == {"meta"}


def test_bad_files_are_explained(write):
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
