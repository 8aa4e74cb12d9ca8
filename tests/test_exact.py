"""The engine's claims, one at a time: whole numbers are exact, the float32 bound holds, shortcuts equal the long way."""

import torch
from torch.nn import functional as F

from likewise import exact


def unit(n, d, seed=0):
    return F.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_dot_products_of_whole_numbers_are_exact_in_any_order():
    """Summed as Python integers, forwards, backwards and by blocks: one number, which float64 holds."""
    side = exact.prepare(unit(6, 700), None, None, "query")
    q = side.whole.double()
    for order in (torch.arange(700), torch.arange(699, -1, -1), torch.randperm(700)):
        found = q[:, order] @ q[:, order].T
        for i in range(6):
            for j in range(6):
                assert int(found[i, j]) == sum(
                    int(a) * int(b) for a, b in zip(side.whole[i], side.whole[j], strict=True)
                )
    assert found.abs().max() < 2**53


def test_rounding_moves_a_cosine_by_no_more_than_its_bound():
    """Each coordinate moves by at most 2^-27, so a cosine by at most 2 sqrt(D) 2^-27."""
    z = unit(50, 128)
    side = exact.prepare(z, None, None, "query")
    truth = F.normalize(z.double(), dim=1)
    found = side.whole.double() @ side.whole.double().T / side.scale**2
    assert (found - truth @ truth.T).abs().max() < 2 * 128**0.5 * 2.0**-27


def test_the_float32_error_bound_holds():
    for d in (3, 64, 2048):
        side = exact.prepare(unit(300, d), None, None, "query")
        true = side.whole.double() @ side.whole.double().T / side.scale**2
        assert (exact._approximate(side.real, side).double() - true).abs().max() <= exact._float32_error(side, side)
        z = unit(300, d) * torch.linspace(0.1, 50, 300)[:, None]
        scale = exact.euclidean_scale(z)
        raw = exact.prepare(z, None, scale, "query")
        true = (2 * raw.whole.double() @ raw.whole.double().T - raw.norm) / scale**2
        assert (exact._approximate(raw.real, raw).double() - true).abs().max() <= exact._float32_error(raw, raw)


def test_the_sum_has_one_order():
    x = torch.randn(40, 77, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = exact._fixed_order_sum(x)
    alone = torch.stack([exact._fixed_order_sum(row[None])[0] for row in x])
    assert torch.equal(together, alone)
    assert torch.allclose(together, x.sum(1))


def test_blocks_let_the_same_scores_win_as_one_big_comparison():
    """Sparse and dense ways into the running best, columns from transposed blocks included."""
    g = torch.Generator().manual_seed(0)
    score = torch.randn(60, 900, generator=g)
    best = exact._Best(60, 7, torch.device("cpu"))
    for first in range(0, 900, 100):
        block = score[:, first : first + 100].contiguous()
        best.take(slice(0, 60), first, block.T.contiguous().T if first % 200 else block)
    want = score.topk(7, dim=1)
    assert torch.equal(best.score, want.values) and torch.equal(best.row, want.indices)
    rising = exact._Best(2, 3, torch.device("cpu"))  # every later block beats all earlier ones
    for first in range(0, 90, 30):
        rising.take(slice(0, 2), first, torch.arange(first, first + 30.0).expand(2, 30).contiguous())
    assert rising.row.tolist() == [[89, 88, 87]] * 2


def test_a_proposal_that_cannot_be_proven_is_not_trusted():
    """More equals than the slack holds: the proposal alone would keep whichever float32 liked."""
    z = unit(400, 16)
    z[100:300] = z[100].clone()
    side = exact.prepare(z, None, None, "query")
    own = torch.arange(400)
    candidate, floor = exact._propose(side, side, own, own, 12)
    _, _, proven = exact._rescore(side, side, own, candidate, floor, 4, 2**20)
    assert not proven[100:300].any() and proven[:100].float().mean() > 0.9
    row, _ = exact._exhaustive(side, side, own, own, 4)
    assert row[150].tolist() == [100, 101, 102, 103] and row[100].tolist() == [101, 102, 103, 104]
