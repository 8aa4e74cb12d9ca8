"""Proposals: the bound on their error holds, groups find the same as a plain search, and what is proven is right."""

import pytest
import torch
from torch.nn import functional as F

from likewise.core.retrieval import candidates as propose
from likewise.core.retrieval import integer_scores as exact


def side(n, d, seed=0, scale=None, stretch=False):
    z = F.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1)
    z = z * torch.linspace(0.1, 40, n)[:, None] if stretch else z
    return exact.prepare(z, torch.device("cpu"), exact.euclidean_scale(z) if stretch else None, "query")


def nobody(queries, gallery):
    return exact.Exclusions(len(queries), None, torch.zeros((0, 2), dtype=torch.int64))


@pytest.mark.parametrize("stretch", [False, True])
@pytest.mark.parametrize("dim", [3, 128, 1000])
def test_no_score_is_further_off_than_the_bound(dim, stretch):
    both = side(300, dim, stretch=stretch)
    everyone = torch.arange(300)
    q = both.whole(everyone)
    truth = exact.keys(both, both, nobody(both, both), q, everyone, slice(0, 300)) / both.max_integer**2
    guess = propose._approximate(both.scaled(everyone), both, slice(0, 300))
    error = (guess.double() - truth).abs().max()
    assert 0 < error <= propose.error_of(both)


def test_the_proposal_holds_the_best_and_its_floor_is_true():
    both = side(700, 24)
    ids = torch.tensor([5, 699, 0, 31])
    candidate, floor = propose._propose(both, both, nobody(both, both), ids, 9, 40_000)
    score = propose._approximate(both.scaled(ids), both, slice(0, 700))
    for place in range(4):
        assert set(candidate[place].tolist()) == set(score[place].topk(9).indices.tolist())
        assert floor[place] == score[place].topk(9).values[-1]


def test_blocks_that_come_in_parts_compete_as_a_whole():
    score = torch.randn(6, 500, generator=torch.Generator().manual_seed(1))
    best = propose.Best(6, 7, torch.device("cpu"))
    for rows in exact.row_slices(500, 60):
        best.take(slice(0, 6), rows.start, score[:, rows])
    want = score.topk(7, dim=1)
    assert torch.equal(best.score, want.values) and torch.equal(best.row.long(), want.indices)
    assert torch.equal(propose.largest(score, 7)[1], want.indices)


@pytest.mark.gpu
@pytest.mark.parametrize("wide", [4096, 4100, 9999])
def test_groups_find_the_same_on_a_gpu(wide):
    score = torch.randn(50, wide, generator=torch.Generator().manual_seed(1)).cuda()
    found, at = propose.largest(score, 20)
    want = score.topk(20, dim=1)
    assert torch.equal(found, want.values) and torch.equal(at, want.indices)


def test_every_way_into_the_running_best_gives_the_same():
    """Sparse and dense, columns from transposed blocks, and blocks that each beat all before."""
    score = torch.randn(60, 900, generator=torch.Generator().manual_seed(0))
    best = propose.Best(60, 7, torch.device("cpu"))
    for first in range(0, 900, 100):
        block = score[:, first : first + 100].contiguous()
        best.take(slice(0, 60), first, block.T.contiguous().T if first % 200 else block)
    want = score.topk(7, dim=1)
    assert torch.equal(best.score, want.values) and torch.equal(best.row.long(), want.indices)
    rising = propose.Best(2, 3, torch.device("cpu"))
    for first in range(0, 90, 30):
        rising.take(slice(0, 2), first, torch.arange(first, first + 30.0).expand(2, 30).contiguous())
    assert rising.row.tolist() == [[89, 88, 87]] * 2


def test_a_proposal_that_cannot_be_proven_is_not_trusted():
    """More equals than the slack holds: the proposal alone would keep whichever float32 liked."""
    z = F.normalize(torch.randn(400, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    z[100:300] = z[100].clone()
    both = exact.prepare(z, torch.device("cpu"), None, "query")
    own = torch.arange(400)
    out = exact.Exclusions(400, own, torch.zeros((0, 2), dtype=torch.int64))
    candidate, floor = propose._propose(both, both, out, own, 12, 2**20)
    _, _, proven = propose._rescore(both, both, own, candidate, floor, 4, 2**20)
    assert not proven[100:300].any() and proven[:100].float().mean() > 0.9
