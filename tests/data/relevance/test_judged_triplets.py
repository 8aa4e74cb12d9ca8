"""Judged triplets of a batch against a search through all lines of the file."""

import numpy as np
import pytest
import torch
from likewise.losses import MultiSimilarity
from likewise.miners import SemiHard
from likewise.relevance import JudgedTriplets
from likewise.types import LikewiseError

from likewise.learn.losses._blockwise import triplets
from likewise.testing import check_relevance

COUNT = 30


@pytest.fixture
def judged() -> list[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    return [tuple(rng.permutation(COUNT)[:3].tolist()) for _ in range(400)]


@pytest.fixture
def make(write, judged):
    head = "anchor,nearer,farther\n"
    file = write("t.csv", head + "".join(f"{a},{p},{n}\n" for a, p, n in judged) + "0,1,test\n")
    return lambda per_anchor=16: JudgedTriplets(
        file, tuple(map(str, range(COUNT))), per_anchor=per_anchor, other_names=("test",)
    )


def named(t, y: torch.Tensor) -> list[tuple[int, ...]]:
    return sorted(tuple(int(y[one]) for one in row) for row in zip(t.a[t.valid], t.p[t.valid], t.n[t.valid]))


def test_all_triplets_inside_of_the_batch(make, judged):
    relevance = make(per_anchor=100)
    for seed in range(5):
        y = torch.randperm(COUNT, generator=torch.Generator().manual_seed(seed))[:12]
        t = relevance.triplets(y)
        inside = set(y.tolist())
        assert named(t, y) == sorted(one for one in judged if set(one) <= inside)
        assert len(t.a) == 12 * relevance.longest and t.pull.all() and not t.one_each


def test_at_most_so_many_of_an_anchor_and_one_shape(make, judged):
    relevance, y = make(per_anchor=3), torch.arange(COUNT)
    t = relevance.triplets(y)
    assert len(t.a) == 3 * COUNT and torch.bincount(t.a[t.valid]).max() == 3
    assert set(named(t, y)) <= set(judged)
    anchors = torch.bincount(torch.tensor([one[0] for one in judged]), minlength=COUNT).clamp_max(3)
    assert torch.equal(
        torch.bincount(t.a[t.valid], minlength=COUNT), anchors
    )  # none is lost to a triplet outside the batch
    small = torch.arange(4)
    assert len(relevance.triplets(small).a) == 12 and set(named(relevance.triplets(small), small)) <= set(judged)
    torch.manual_seed(0)
    first = relevance.triplets(y)
    torch.manual_seed(0)
    assert torch.equal(first.p, relevance.triplets(y).p)


def test_all_judged_triplets(make, judged):
    assert sorted(map(tuple, make().judged().tolist())) == sorted(judged)


def test_a_sample_that_is_in_the_batch_twice(make, judged):
    relevance, y = make(per_anchor=100), torch.tensor([3, 5, 3, 7, 9, 11])
    t = relevance.triplets(y)
    inside = [one for one in judged if set(one) <= set(y.tolist())]
    assert named(t, y) == sorted(one for one in inside for _ in range(2 if one[0] == 3 else 1))


def test_losses_take_them_in_place_of_a_miner_and_losses_of_pairs_refuse(make, judged):
    z = torch.nn.functional.normalize(torch.randn(COUNT, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    relevance, y = make(per_anchor=100), torch.arange(COUNT)
    found = triplets(z, y, None, SemiHard(), relevance=relevance)  # the judged triplets replace those of the miner
    assert named(found, y) == sorted(judged)
    with pytest.raises(LikewiseError, match="gives triplets, but this loss uses pairs"):
        MultiSimilarity().with_relevance(relevance)


def test_the_contract(make):
    check_relevance(make)
    check_relevance(lambda: make(per_anchor=2))
    assert make()(torch.arange(2), torch.arange(2)).isnan().tolist() == [[False, True], [True, False]]


def test_bad_arguments(write, make):
    with pytest.raises(LikewiseError, match="different samples, got '0' twice"):
        JudgedTriplets(write("t.csv", "anchor,nearer,farther\n0,1,0\n"), ("0", "1"))


def test_memory_does_not_grow_with_the_triplets_of_one_anchor(write, largest_tensor, monkeypatch):
    """One anchor has nearly all triplets: the others do not get a row of that length."""
    lines = [f"0,{1 + n % 28},{2 + n % 28}" for n in range(9000)]
    relevance = JudgedTriplets(
        write("long.csv", "\n".join(["anchor,nearer,farther", *lines, "1,2,3"])),
        tuple(map(str, range(COUNT))),
        per_anchor=5,
    )
    y = torch.arange(COUNT)
    assert largest_tensor(lambda: relevance.triplets(y)) < COUNT * 5000
    found = relevance.triplets(y)
    assert torch.bincount(found.a[found.valid]).tolist() == [5, 1] and len(found.a) == 5 * COUNT
    every = {(0, 1 + n, 2 + n) for n in range(28)} | {(1, 2, 3)}
    assert set(named(found, y)) <= every
    drawn = {one for _ in range(200) for one in named(relevance.triplets(y), y)}
    assert drawn == every  # those of every block
