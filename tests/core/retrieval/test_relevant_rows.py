"""Ranking by relevance against plain loops: ties, exclusions, groups, unknown values and budgets that force every path."""

import math

import pytest
import torch
from likewise.relevance import GivenValues, SharedLabels
from torch.nn import functional as F

from likewise.core.retrieval.ranking import rank
from likewise.core.retrieval.relevant_rows import ANY_RELEVANCE, RowRelevance

BUDGETS = [2**29, 40_000, 1]
FIELDS = ("row", "match", "sim", "relevant", "depth", "hit_rank", "start")


def data(n=90, classes=12, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    z = F.normalize(torch.randn(classes, 8, generator=g)[y] + torch.randn(n, 8, generator=g), dim=1)
    z[10:25] = z[10].clone()  # ties
    return z, y, g


def order_of(z, gallery, hidden):
    """Gallery rows of every query by whole-number arithmetic, one pair at a time, without hidden pairs."""

    def whole(v):
        v = v.double()
        return [int(x) for x in (v / v.square().sum().sqrt() * 2.0**26).round().tolist()]

    g = [whole(v) for v in gallery]
    return [
        [j for _, j in sorted((-sum(a * b for a, b in zip(q, v, strict=True)), j) for j, v in enumerate(g) if not hidden[i][j])]
        for i, q in enumerate(map(whole, z))
    ]  # fmt: skip


def assert_ranking(found, orders, values, threshold, best):
    for i, order in enumerate(orders):
        k = found.row.shape[1]
        assert found.row[i].tolist() == (order + [-1] * k)[:k], f"query {i}"
        listed = [values[i][j] for j in order]
        assert int(found.relevant[i]) == sum(v >= threshold for v in listed)
        assert found.value[i].tolist()[: len(order)] == pytest.approx(listed[:k])
        top = sorted(listed, reverse=True)
        assert found.best[i].tolist() == pytest.approx((top + [0.0] * best)[:best])
        hits = [(r + 1, v) for r, v in enumerate(listed) if v >= threshold and r < found.depth[i]]
        mine = slice(found.start[i], found.start[i + 1])
        assert found.hit_rank[mine].tolist() == [r for r, _ in hits]
        assert found.hit_value[mine].tolist() == pytest.approx([v for _, v in hits])


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("all_hits", [False, True])
def test_one_hot_labels_rank_as_single_labels_do_bit_for_bit(budget, all_hits):
    z, y, _ = data()
    one_hot = RowRelevance(SharedLabels([(c,) for c in range(12)]), y, y, ANY_RELEVANCE)
    plain, graded = (rank(z, y, k=7, all_hits=all_hits, budget=budget, relevance=r) for r in (None, one_hot))
    for name in FIELDS:
        assert torch.equal(getattr(plain, name), getattr(graded, name)), name


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("threshold", [ANY_RELEVANCE, 0.6])
def test_graded_values_with_unknown_ones_equal_plain_loops(budget, threshold):
    """Unknown pairs are no results; they need not be the same in both directions."""
    z, y, g = data()
    n = len(y)
    values = (torch.rand(n, n, generator=g) * 4).round() / 4
    values[torch.rand(n, n, generator=g) < 0.2] = math.nan
    group = torch.randint(-1, 9, (n,), generator=g)
    pairs = torch.tensor([[3, 60], [7, 8], [11, 12]])
    ids = torch.arange(n)
    given = RowRelevance(GivenValues(values), ids, ids, threshold, best=6, hit_values=True)
    found = rank(z, y, k=9, group=group, exclude=pairs, relevance=given, all_hits=True, budget=budget)
    hidden = values.isnan() | torch.eye(n, dtype=torch.bool) | ((group[:, None] == group) & (group >= 0))
    hidden[pairs[:, 0], pairs[:, 1]] = hidden[pairs[:, 1], pairs[:, 0]] = True
    assert_ranking(found, order_of(z, z, hidden.tolist()), values.tolist(), threshold, 6)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("all_hits", [False, True])
def test_queries_and_gallery_with_several_labels_equal_plain_loops(budget, all_hits):
    z, y, g = data()
    sets = [tuple(torch.randperm(6, generator=g)[: 1 + c % 3].tolist()) for c in range(12)]
    q, gal = torch.arange(0, 40), torch.arange(25, 90)
    own = torch.where(q >= 25, q - 25, -1)
    given = RowRelevance(SharedLabels(sets), y[q], y[gal], ANY_RELEVANCE, best=4, hit_values=True)
    found = rank(z[q], y[q], z[gal], y[gal], k=5, own=own, relevance=given, all_hits=all_hits, budget=budget)
    values = [
        [len({*sets[a]} & {*sets[b]}) / len({*sets[a]} | {*sets[b]}) for b in y[gal].tolist()] for a in y[q].tolist()
    ]
    hidden = [[int(own[i]) == j for j in range(len(gal))] for i in range(len(q))]
    assert_ranking(found, order_of(z[q], z[gal], hidden), values, ANY_RELEVANCE, 4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same_bits():
    z, y, g = data(400)
    sets = [tuple(torch.randperm(6, generator=g)[: 1 + c % 3].tolist()) for c in range(12)]
    given = [
        RowRelevance(SharedLabels(sets).to(d), y, y, ANY_RELEVANCE, best=4, hit_values=True) for d in ("cpu", "cuda")
    ]
    expected = rank(z, y, k=5, relevance=given[0], all_hits=True, device="cpu")
    found = rank(z, y, k=5, relevance=given[1], all_hits=True, device="cuda")
    for name in (*FIELDS, "value", "best", "hit_value"):
        assert torch.equal(getattr(found, name).cpu(), getattr(expected, name)), name
