"""The engine's claims, one at a time: whole numbers are exact, ties go by row, counting gives the rank of the long way."""

import pytest
import torch
from torch.nn import functional as F

from likewise.core.retrieval import integer_scores as exact

CPU = torch.device("cpu")


def unit(n, d, seed=0):
    return F.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1)


def prepare(z, scale=None):
    return exact.prepare(z, CPU, scale, "query")


def exclusions(side, own=None, pairs=()):
    table = torch.tensor(list(pairs), dtype=torch.int64).reshape(-1, 2)
    return exact.Exclusions(len(side), own, table)


def test_dot_products_of_whole_numbers_are_exact_in_any_order():
    """Summed as Python integers, forwards, backwards and by blocks: one number, which float64 holds."""
    q = prepare(unit(6, 700)).whole(slice(0, 6))
    for order in (torch.arange(700), torch.arange(699, -1, -1), torch.randperm(700)):
        found = q[:, order] @ q[:, order].T
        for i in range(6):
            for j in range(6):
                assert int(found[i, j]) == sum(int(a) * int(b) for a, b in zip(q[i], q[j], strict=True))
    assert found.abs().max() < 2**53


def test_rounding_moves_a_cosine_by_no_more_than_its_bound():
    """Each coordinate moves by at most 2^-27, so a cosine by at most 2 sqrt(D) 2^-27."""
    z = unit(50, 128)
    side = prepare(z)
    truth = F.normalize(z.double(), dim=1)
    whole = side.whole(torch.arange(50))
    assert (whole @ whole.T / side.scale**2 - truth @ truth.T).abs().max() < 2 * 128**0.5 * 2.0**-27


def test_rows_are_made_whole_alike_in_blocks_alone_and_where_there_is_room_to_keep_them():
    z = unit(40, 33)
    side, kept = prepare(z), exact.prepare(z, CPU, None, "query", room=2**20)
    assert side.scaled_copy is None and kept.scaled_copy is not None
    whole, real = side.whole(slice(0, 40)), side.scaled(slice(0, 40))
    for i in (0, 7, 39):
        one = torch.tensor([i])
        assert torch.equal(side.whole(one)[0], whole[i])
        assert torch.equal(side.scaled(one)[0], real[i]) and torch.equal(kept.scaled(one)[0], real[i])


def test_the_sum_has_one_order():
    x = torch.randn(40, 77, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = exact._fixed_order_sum(x)
    alone = torch.stack([exact._fixed_order_sum(row[None])[0] for row in x])
    assert torch.equal(together, alone)
    assert torch.allclose(together, x.sum(1))


def test_who_is_forbidden_is_out_and_nobody_else():
    side = prepare(unit(9, 4))
    out = exclusions(side, own=torch.tensor([0, -1, 2, 3, 4, 5, 6, 7, 8]), pairs=[(1, 4), (2, 0), (2, 8)])
    for first, wide in ((0, 9), (3, 4)):
        ids = torch.tensor([2, 1, 5])
        score = torch.zeros(3, wide)
        out.mask(score, ids, first)
        want = {2: {0, 2, 8}, 1: {4}, 5: {5}}
        for place, i in enumerate(ids.tolist()):
            gone = {first + c for c in range(wide) if score[place, c] == -torch.inf}
            assert gone == {row for row in want[i] if first <= row < first + wide}


@pytest.mark.parametrize("budget", [1, 2**22])
@pytest.mark.parametrize("answers", [5, 40])
@pytest.mark.parametrize("raw", [False, True])
def test_ranks_of_few_and_of_many_answers_are_those_of_a_full_sort(budget, raw, answers):
    z = unit(150, 5) * (torch.linspace(0.2, 3, 150)[:, None] if raw else 1)
    z[20:60] = z[20].clone()  # many equals
    z[70] = 0
    side = prepare(z, exact.euclidean_scale(z) if raw else None)
    out = exclusions(side, own=torch.arange(150), pairs=[(3, 9), (30, 21)])
    everyone = torch.arange(150)
    key = exact.keys(side, side, out, side.whole(everyone), everyone, slice(0, 150))
    order = key.sort(dim=1, descending=True, stable=True).indices
    rank_of = torch.empty_like(order).scatter_(1, order, everyone.expand(150, -1).contiguous()) + 1
    g = torch.Generator().manual_seed(2)
    chosen = [(q, row) for q in (0, 3, 20, 30, 70, 149) for row in torch.randperm(150, generator=g)[:answers].tolist()]
    who, row = (torch.tensor(side) for side in zip(*[(q, r) for q, r in chosen if key[q, r] > -torch.inf]))
    assert torch.equal(exact.places(side, side, out, who, row, budget), rank_of[who, row])


def test_pairs_alone_score_as_in_a_block_however_they_are_cut():
    side = prepare(unit(200, 30) * 3, 2.0**20)
    ids, everyone = torch.tensor([5, 199]), torch.arange(200)
    want = exact.keys(side, side, exclusions(side), side.whole(ids), ids, slice(0, 200))
    for budget in (1, 30 * 24 * 150, 2**22):
        assert torch.equal(exact.pair_keys(side, side, ids, everyone.expand(2, -1), budget), want)


def test_all_against_all_in_tiles_goes_by_key_then_by_row():
    z = unit(400, 16)
    z[100:300] = z[100].clone()
    side = prepare(z)
    out = exclusions(side, own=torch.arange(400))
    for budget in (1, 2**26):
        found = {}
        for ids, row, _ in exact.exhaustive(side, side, out, torch.tensor([150, 100, 7]), 4, budget):
            found |= dict(zip(ids.tolist(), row.tolist()))
        assert found[150] == [100, 101, 102, 103] and found[100] == [101, 102, 103, 104]
