import math

import pytest
import torch
from likewise.losses import ArcFace
from torch.nn import functional as F


def at_angles(angles):
    loss = ArcFace(classes=2, dim=2).double()
    loss.proxies.data = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    z = torch.stack([angles.cos(), -angles.sin()], 1)
    return loss._with_margin((z @ loss.proxies.detach().T / 3)[:, :1]).squeeze(1)


def test_a_larger_angle_never_costs_less_not_even_beyond_pi():
    turned = at_angles(torch.linspace(0, math.pi, 400, dtype=torch.float64))
    assert (turned[1:] < turned[:-1]).all()
    assert turned[-1] == pytest.approx(-1 - 0.5 * math.sin(0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("side", [1, -1])
def test_gradient_is_finite_on_the_own_proxy_and_opposite(dtype, side):
    torch.manual_seed(0)
    loss = ArcFace(classes=4, dim=8).to(dtype)
    e = (side * 3 * F.normalize(loss.proxies.detach(), dim=1)).requires_grad_()
    loss(F.normalize(e, dim=1), torch.arange(4)).sum().backward()
    assert torch.isfinite(e.grad).all() and torch.isfinite(loss.proxies.grad).all()
    assert e.grad.norm(dim=1).max() < 16  # as large as scale allows, not as the slope of a root


def test_negative_cosines_count():
    loss = ArcFace(classes=3, dim=3).double()
    loss.proxies.data = torch.eye(3, dtype=torch.float64)
    z = F.normalize(torch.tensor([[1.0, -0.2, -0.2], [1.0, -0.9, -0.9]], dtype=torch.float64), dim=1)
    z.requires_grad_()
    loss(z, torch.zeros(2, dtype=torch.int64)).sum().backward()
    assert (z.grad[:, 1:] > 0).all()
