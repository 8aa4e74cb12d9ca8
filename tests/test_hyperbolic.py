"""Hyperbolic distances, against the printed formula of the Poincare ball."""

import math

import pytest
import torch
from torch.nn import functional as F

from likewise.hyperbolic import neg_hyperbolic


def in_the_ball(v):
    """The exponential map at 0: tanh|v| in the direction of v."""
    size = math.sqrt(sum(x * x for x in v))
    return [math.tanh(size) * x / size for x in v]


def apart(u, v):
    gap = sum((a - b) ** 2 for a, b in zip(u, v))
    room = (1 - sum(a * a for a in u)) * (1 - sum(b * b for b in v))
    return math.acosh(1 + 2 * gap / room)


def test_by_hand_for_vectors_of_any_length():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(5, 4, generator=g, dtype=torch.float64)
    b = torch.randn(7, 4, generator=g, dtype=torch.float64) * 2
    expected = [[-apart(in_the_ball(u), in_the_ball(v)) for v in b.tolist()] for u in a.tolist()]
    torch.testing.assert_close(neg_hyperbolic(a, b), torch.tensor(expected, dtype=torch.float64))


def test_unit_vectors_are_0_to_4_apart_and_a_cosine_of_a_half_is_2_7():
    axes = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.5, math.sqrt(0.75)]])
    d = -neg_hyperbolic(axes[:1], axes)[0]
    torch.testing.assert_close(d, torch.tensor([0.0, 4.0, 2.7139]), rtol=0, atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_slope_where_vectors_coincide_or_vanish(dtype):
    z = F.normalize(torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=dtype), dim=1)
    for given in (z[[0, 0, 1, 1]], torch.zeros(4, 3, dtype=dtype), 15 * z):
        given = given.clone().requires_grad_()
        found = neg_hyperbolic(given, given)
        found.sum().backward()
        assert torch.isfinite(found).all() and torch.isfinite(given.grad).all()


def test_slope():
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: neg_hyperbolic(z[:2], z[2:]), z)
