"""Counted ranks equal those of a full sort, whatever the error bound leaves open."""

import pytest
import torch
from torch.nn import functional as F

from likewise.core.retrieval import hit_counts, ranking
from likewise.core.retrieval.candidates import error_of
from likewise.core.retrieval.hit_counts import HitCounter
from likewise.core.retrieval.integer_scores import Exclusions, keys, prepare
from likewise.core.retrieval.ranking import rank


def data(n=400, classes=80, seed=0):
    """Classes of five on average in eight dimensions, hard to find; with copies of one vector in several classes."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    z = torch.randn(classes, 8, generator=g)[y] + 1.5 * torch.randn(n, 8, generator=g)
    z[10:30] = z[10].clone()
    return F.normalize(z, dim=1) * (1 + torch.rand(n, 1, generator=g)), y


def equal(a, b):
    return all(
        torch.equal(getattr(a, name), getattr(b, name)) for name in ("hit_rank", "start", "depth", "relevant", "row")
    )


@pytest.mark.parametrize("scale", [None, 2.0**20])
@pytest.mark.parametrize("error", [0.0, 0.01, 0.5])
def test_ranks_are_those_of_a_full_sort(scale, error):
    """A larger bound than needed leaves more pairs to exact scores and changes no rank."""
    z, y = data(100, 25)
    both = prepare(z, z.device, scale, "query")
    everyone = torch.arange(100)
    apart = Exclusions(100, everyone, torch.zeros((0, 2), dtype=torch.int64))
    query, row = ((y[:, None] == y) & ~torch.eye(100, dtype=torch.bool)).nonzero(as_tuple=True)
    counter = HitCounter(both, both, query, row, error + error_of(both), 2**20)
    key = keys(both, both, apart, both.whole(everyone), everyone, slice(0, 100))
    noise = (torch.rand(100, 100, generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 0.5) * 2 * error
    score = (key / both.max_integer**2 + 0.8 * noise).to(
        torch.float16 if error else torch.float32
    )  # as on a GPU and on a CPU
    for first in (0, 40):  # two blocks, the second of them transposed in memory
        block = score[:, first : first + 40 if first == 0 else 100]
        counter.take(everyone, first, block if first == 0 else block.T.contiguous().T)
    counter.seen.fill_(True)
    assert counter.counted.all() and (error == 0 or sum(len(q) for q, _ in counter.open) > len(row))
    order = key.sort(dim=1, descending=True, stable=True).indices
    place = torch.empty_like(order).scatter_(1, order, torch.arange(1, 101).expand(100, 100).contiguous())
    got_query, got_row, got = counter.hits(torch.ones(100, dtype=torch.bool))
    assert torch.equal(got, place[got_query, got_row]) and len(got) == len(row)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("sides", ["one set", "gallery apart"])
def test_a_ranking_with_counted_hits_equals_one_without(monkeypatch, similarity, sides):
    z, y = data()
    how = {"k": 2, "all_hits": True, "similarity": similarity}
    args = (z, y) if sides == "one set" else (z[:150], y[:150], z[100:], y[100:])
    if sides != "one set":
        how["own"] = torch.where(torch.arange(150) >= 100, torch.arange(150) - 100, -1)
    pairs = torch.tensor([[3, 60], [7, 8], [100, 1]])
    counters, make = [], ranking._hit_counter
    monkeypatch.setattr(ranking, "_hit_counter", lambda *given: None)
    plain = rank(*args, exclude=pairs, **how)
    monkeypatch.setattr(ranking, "_hit_counter", lambda *given: counters.append(make(*given)) or counters[-1])
    for error in (0.0, 0.05):
        monkeypatch.setattr(ranking, "error_of", lambda gallery, more=error: error_of(gallery) + more)
        for budget in (2**29, 2**20):
            assert equal(rank(*args, exclude=pairs, budget=budget, **how), plain)
            assert counters[-1].counted.any()


@pytest.mark.parametrize(("limit", "room"), [(2, 2**20), (1024, 50)])
def test_a_query_with_too_many_open_rows_is_scored_in_full(monkeypatch, limit, room):
    z, y = data()
    plain = rank(z, y, k=2, all_hits=True)
    made, make = [], ranking._hit_counter

    def scarce(*given):
        made.append(make(*given))
        made[0].open_room = room
        return made[0]

    monkeypatch.setattr(ranking, "_hit_counter", scarce)
    monkeypatch.setattr(hit_counts, "MAX_OPEN_ROWS", limit)
    monkeypatch.setattr(ranking, "error_of", lambda gallery: 0.05)
    assert equal(rank(z, y, k=2, all_hits=True), plain)
    assert (~made[0].counted).any() and sum(len(q) for q, _ in made[0].open) <= room


def test_large_classes_are_not_counted():
    relevant = torch.full((60,), 29)
    assert ranking._hit_counter(None, None, None, None, relevant, 2**29) is None
