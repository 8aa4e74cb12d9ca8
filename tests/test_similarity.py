import math

import torch

from likewise.similarity import (
    compare,
    cosine,
    distance,
    log1p_sum_exp,
    mean_over,
    neg_euclidean,
    pick,
    spread,
    squared_distance,
)  # fmt: skip
from likewise.types import Ref


def unit(*shape, seed=0):
    return torch.nn.functional.normalize(
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=1
    )


def test_similarities_by_hand():
    a, b = unit(3, 4), unit(5, 4, seed=1)
    for i in range(3):
        for j in range(5):
            dot = sum(float(a[i, d]) * float(b[j, d]) for d in range(4))
            gap = math.sqrt(sum((float(a[i, d]) - float(b[j, d])) ** 2 for d in range(4)))
            assert math.isclose(cosine(a, b)[i, j], dot, abs_tol=1e-12)
            assert math.isclose(neg_euclidean(a, b)[i, j], -gap, abs_tol=1e-9)
            assert math.isclose(distance(cosine(a, b))[i, j], gap, abs_tol=1e-9)
            assert math.isclose(squared_distance(cosine(a, b))[i, j], gap**2, abs_tol=1e-9)


def test_distance_has_a_finite_slope_at_zero():
    sim = torch.tensor([1.0, 1.0000001, 0.5], requires_grad=True)
    distance(sim).sum().backward()
    assert torch.isfinite(sim.grad).all() and sim.grad[2] != 0


def test_log1p_sum_exp_by_hand_and_at_extremes():
    x = torch.tensor(
        [[1.0, -2.0, 3.0], [1000.0, -1000.0, 5.0], [9.0, 9.0, 9.0]], dtype=torch.float64, requires_grad=True
    )
    mask = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
    value = log1p_sum_exp(x, mask)
    assert math.isclose(value[0].item(), math.log(1 + math.e + math.exp(-2)), rel_tol=1e-12)
    assert math.isclose(value[1].item(), 1000.0, rel_tol=1e-12)
    assert value[2] == 0
    value.sum().backward()
    assert torch.isfinite(x.grad).all() and (x.grad[2] == 0).all() and x.grad[0, 2] == 0


def test_mean_over_and_spread():
    x = torch.tensor([[1.0, 2.0, 30.0], [4.0, 5.0, 6.0]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_over(x, mask).tolist() == [1.5, 0.0]
    each, valid = torch.tensor([3.0, 5.0, 7.0, 100.0]), torch.tensor([True, False, True, False])
    assert spread(each, valid).mean() == 5.0
    assert spread(each, torch.zeros(4, dtype=torch.bool)).sum() == 0


def test_pick_is_uniform_over_the_mask():
    torch.manual_seed(0)
    mask = torch.tensor([[True, False, True, True], [False, False, False, False]])
    draws = [pick(mask) for _ in range(3000)]
    assert not any(has[1] for _, has in draws) and all(has[0] for _, has in draws)
    counts = torch.bincount(torch.stack([c[0] for c, _ in draws]), minlength=4)
    assert counts[1] == 0 and (counts[[0, 2, 3]] - 1000).abs().max() < 120


def test_compare_never_pairs_a_sample_with_itself():
    z, y = unit(4, 3), torch.tensor([0, 0, 1, 1])
    sim, pairs = compare(z, y)
    assert torch.equal(pairs.pos, torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]).bool())
    assert torch.equal(pairs.neg, (y[:, None] != y[None]))
    memory = Ref(torch.cat([unit(2, 3, seed=2), z]), torch.tensor([0, 1, 0, 0, 1, 1]), torch.tensor([2, 3, 4, 5]))
    wide, more = compare(z, y, memory)
    assert torch.allclose(wide[:, 2:], sim) and torch.equal(more.pos[:, 2:], pairs.pos)
    assert more.pos[:, :2].tolist() == [[True, False], [True, False], [False, True], [False, True]]
    _, strangers = compare(z, y, Ref(z, y))  # a memory that does not hold the batch itself
    assert strangers.pos.diagonal().all()


def test_compare_works_in_float32_under_autocast():
    z = unit(4, 3).float()
    with torch.autocast("cpu", torch.bfloat16):
        sim, _ = compare(z.bfloat16(), torch.tensor([0, 0, 1, 1]))
    assert sim.dtype == torch.float32
