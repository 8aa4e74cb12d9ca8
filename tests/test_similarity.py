import math

import torch
from likewise.similarity import (
    compare,
    cosine,
    distance,
    draw_columns,
    length,
    log1p_sum_exp,
    log_sum_exp,
    log_weights,
    mean_over,
    neg_squared,
    normalise_by_count,
    raw_distance,
    squared_distance,
    unit_rows,
    weighted_mean,
)  # fmt: skip
from likewise.types import Ref


def unit(*shape, seed=0):
    return torch.nn.functional.normalize(
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=1
    )


def test_the_gradient_between_equal_vectors_vanishes_at_the_norm():
    """In float32, 2 - 2s of equal vectors is rounding. What passes the norm is below 0.005 of a pair's gradient, 1 / length."""
    e = torch.randn(64, 128, generator=torch.Generator().manual_seed(0)).repeat(2, 1).requires_grad_()
    z = torch.nn.functional.normalize(e, dim=1)
    distance((z @ z.T).diagonal(64)).sum().backward()
    assert (e.grad.norm(dim=1) * e.detach().norm(dim=1)).max() < 0.005


def test_similarities_by_hand():
    a, b = unit(3, 4), unit(5, 4, seed=1)
    for i in range(3):
        for j in range(5):
            dot = sum(float(a[i, d]) * float(b[j, d]) for d in range(4))
            gap = math.sqrt(sum((float(a[i, d]) - float(b[j, d])) ** 2 for d in range(4)))
            assert math.isclose(cosine(a, b)[i, j], dot, abs_tol=1e-12)
            assert math.isclose(neg_squared(a, b)[i, j], -(gap**2), abs_tol=1e-9)
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
    each, valid = torch.tensor([3.0, 0.0, 7.0, 0.0]), torch.tensor([True, False, True, False])
    assert normalise_by_count(each, valid).mean() == 5.0
    assert normalise_by_count(torch.zeros(4), torch.zeros(4, dtype=torch.bool)).sum() == 0


def test_pick_is_uniform_over_the_mask():
    torch.manual_seed(0)
    mask = torch.tensor([[True, False, True, True], [False, False, False, False]])
    draws = [draw_columns(mask) for _ in range(3000)]
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


def test_unit_rows_are_those_of_normalize_in_every_derivative():
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    weight = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain = torch.nn.functional.normalize(x, dim=1)
    torch.testing.assert_close(unit_rows(x), plain)
    found, wanted = (torch.autograd.grad((u * weight).sum(), x)[0] for u in (unit_rows(x), plain))
    torch.testing.assert_close(found, wanted)
    assert torch.autograd.gradgradcheck(unit_rows, (x,))
    torch.testing.assert_close(
        torch.func.jvp(unit_rows, (x,), (weight,)),
        torch.func.jvp(lambda x: torch.nn.functional.normalize(x, dim=1), (x,), (weight,)),
    )


def test_unit_rows_of_nothing_and_of_sixteen_bits():
    zero = torch.zeros(2, 3, requires_grad=True)
    unit_rows(zero).sum().backward()
    assert torch.isfinite(zero.grad).all() and (unit_rows(zero) == 0).all()
    assert unit_rows(torch.ones(2, 4, dtype=torch.bfloat16)).dtype == torch.float32


def test_log_sum_exp_of_nothing_is_very_small_and_harms_no_gradient():
    x = torch.tensor([[1.0, 2.0], [-3.0, 5.0]], requires_grad=True)
    mask = torch.tensor([[True, True], [False, False]])
    value = log_sum_exp(x, mask, 2.0)
    assert math.isclose(value[0], math.log(math.exp(2) + math.exp(4)), rel_tol=1e-6)
    assert torch.isfinite(value[1]) and value[1] < -5e3
    value.where(torch.tensor([True, False]), 0.0).sum().backward()
    assert torch.isfinite(x.grad).all() and (x.grad[1] == 0).all()
    (recorded,) = torch.func.vjp(lambda x: log_sum_exp(x, mask, 2.0).where(mask.any(1), 0.0), x.detach())[1](
        torch.ones(2)
    )
    torch.testing.assert_close(recorded, x.grad)


def test_rows_of_a_reference_that_are_not_used_are_nobodys_partner():
    z, y = unit(3, 4), torch.tensor([0, 0, 1])
    used = torch.tensor([True, True, True, False, True, False])
    memory = Ref(torch.cat([z, z]), torch.tensor([0, 0, 1, 0, 0, 1]), torch.arange(3), used)
    _, pairs = compare(z, y, memory)
    assert pairs.pos.int().tolist() == [[0, 1, 0, 0, 1, 0], [1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]]
    assert pairs.neg.int().tolist() == [[0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0], [1, 1, 0, 0, 1, 0]]


def test_weighted_means_and_logarithms_of_weights_by_hand():
    x, w = torch.tensor([[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]]), torch.tensor([[0.5, 0.0, 1.5], [0.0, 0.0, 0.0]])
    assert weighted_mean(x, w).tolist() == [(0.5 + 6) / 2, 0.0]
    log_r, log_rest = log_weights(torch.tensor([[1.0, 0.25, 0.0]], dtype=torch.float64))
    assert log_r[0, 0] == log_rest[0, 2] == 0  # a weight of 1 changes nothing
    assert math.isclose(log_r[0, 1], math.log(0.25)) and math.isclose(log_rest[0, 1], math.log(0.75))
    assert log_r[0, 2].isfinite() and log_rest[0, 0].isfinite()


def test_raw_distances_and_lengths_by_hand():
    e = 3 * unit(5, 4)
    e[4] = e[0]  # twins
    d = raw_distance(neg_squared(e, e))
    for i in range(5):
        assert math.isclose(length(e)[i].item(), math.hypot(*e[i].tolist()))
        assert math.isclose(length(e, squared=True)[i].item(), math.hypot(*e[i].tolist()) ** 2)
        for j in range(5):
            assert math.isclose(d[i, j].item(), math.dist(e[i].tolist(), e[j].tolist()), abs_tol=2e-4)


def test_raw_distances_and_lengths_have_a_slope_at_zero():
    e = torch.zeros(3, 4, requires_grad=True)
    (raw_distance(neg_squared(e, e)).sum() + length(e).sum()).backward()
    assert (e.grad == 0).all()
    assert length(torch.ones(2, 4, dtype=torch.bfloat16)).tolist() == [2.0, 2.0]
