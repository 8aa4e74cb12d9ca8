import math

import pytest
import torch
from likewise.losses import NPair, n_pair


def dot(a, b):
    return sum(p * q for p, q in zip(a.tolist(), b.tolist()))


def of_pair(e, y, a, p):
    strangers = [n for n in range(len(y)) if y[n] != y[a]]
    return math.log(1 + sum(math.exp(dot(e[a], e[n]) - dot(e[a], e[p])) for n in strangers))


def mates(y, a):
    return [p for p in range(len(y)) if p != a and y[p] == y[a]]


def by_hand(e, y, pairs):
    """Number of each sample from its pairs, without the penalty; the mean is over pairs."""
    each = [sum(of_pair(e, y, a, p) for b, p in pairs if b == a) for a in range(len(y))]
    return torch.tensor([v * len(y) / max(len(pairs), 1) for v in each], dtype=torch.float64)


def lengths(e, power):
    return torch.tensor([0.005 * math.hypot(*row.tolist()) ** power for row in e], dtype=torch.float64)


def draw(monkeypatch, triplets):
    """The class mates of the fixed triplets are drawn."""
    p = torch.tensor(triplets)[:, 1]
    monkeypatch.setattr(n_pair, "draw_columns", lambda mask: (p, mask.any(1)))


def test_all_pairs_by_hand_and_golden(golden):
    pairs = [(a, p) for a in range(12) for p in mates(golden.y, a)]
    each = NPair()(golden.raw, golden.y)
    torch.testing.assert_close(each, by_hand(golden.raw, golden.y, pairs) + lengths(golden.raw, 2))
    value = NPair(penalty=0.0)(golden.raw, golden.y).mean().item()
    assert math.isclose(value, golden.value["npair_all_pairs"], abs_tol=1e-8)


@pytest.mark.parametrize("squared", [True, False])
def test_one_positive_by_hand_and_golden(golden, monkeypatch, squared):
    draw(monkeypatch, golden.miner.triplets)
    each = NPair(one_positive=True, squared_penalty=squared)(golden.raw, golden.y)
    pairs = [(a, p) for a, p, _ in golden.miner.triplets]
    torch.testing.assert_close(each, by_hand(golden.raw, golden.y, pairs) + lengths(golden.raw, 2 if squared else 1))
    assert math.isclose(each.mean().item(), golden.value["npair" if squared else "npair_plain_norm"], abs_tol=1e-8)
    alone = NPair(one_positive=True, penalty=0.0)(golden.raw, golden.y)
    torch.testing.assert_close(alone, golden.each["npair"], rtol=0, atol=1e-8)


def test_one_positive_draws_every_class_mate_alike(golden):
    torch.manual_seed(0)
    drawn = torch.stack([NPair(one_positive=True, penalty=0.0)(golden.raw, golden.y) for _ in range(400)])
    first, second = (of_pair(golden.raw, golden.y, 0, p) for p in (1, 2))
    share = ((drawn[:, 0] - first).abs() < 1e-9).double().mean().item()
    assert ((drawn[:, 0] - first).abs() < 1e-9).logical_or((drawn[:, 0] - second).abs() < 1e-9).all()
    assert abs(share - 0.5) < 0.1


def test_with_two_samples_a_class_both_forms_are_one(golden):
    y = torch.arange(12) // 2
    torch.testing.assert_close(NPair(one_positive=True)(golden.raw, y), NPair()(golden.raw, y))


@pytest.mark.parametrize("one_positive", [True, False])
def test_samples_without_class_mates_do_not_count(golden, one_positive):
    y = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    each = NPair(one_positive=one_positive, penalty=0.0)(golden.raw, y)
    torch.testing.assert_close(each, by_hand(golden.raw, y, [(0, 1), (1, 0)]))


@pytest.mark.parametrize("one_positive", [True, False])
def test_large_dot_products_do_not_overflow(golden, one_positive):
    e = (1000 * golden.raw).float().requires_grad_()
    each = NPair(one_positive=one_positive)(e, golden.y)
    each.mean().backward()
    assert torch.isfinite(each).all() and torch.isfinite(e.grad).all() and each.max() > 1e5
    assert (NPair(one_positive=one_positive, penalty=0.0)(e, torch.zeros_like(golden.y)) == 0).all()  # no strangers


@pytest.mark.parametrize("long", [200.0, 1e4])
def test_a_long_embedding_keeps_its_loss(long):
    """Only differences of products count, however large the products are."""
    z = torch.tensor([[long, 0], [0, 1], [0.01, 0]], dtype=torch.float64, requires_grad=True)
    each = NPair(penalty=0)(z, torch.tensor([0, 0, 1]))
    drawn = NPair(penalty=0, one_positive=True)(z, torch.tensor([0, 0, 1]))
    torch.testing.assert_close(each, drawn)
    assert math.isclose(each[0].item(), 1.5 * math.log(1 + math.exp(min(0.01 * long, 700))), rel_tol=1e-9)
    each.sum().backward()
    assert torch.isfinite(z.grad).all() and z.grad[0].abs().sum() > 0
