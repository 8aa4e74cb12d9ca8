import math

import pytest
import torch
from likewise.losses import ArcFace
from torch.nn import functional as F


def by_hand(z, y, proxies, scale, margin):
    each = []
    for i in range(len(y)):
        logits = []
        for c in range(len(proxies)):
            length = math.sqrt(sum(float(v) ** 2 for v in proxies[c]))
            angle = math.acos(sum(float(a) * float(b) for a, b in zip(z[i], proxies[c])) / length)
            if c != int(y[i]):
                logits.append(scale * math.cos(angle))
            elif angle + margin <= math.pi:
                logits.append(scale * math.cos(angle + margin))
            else:
                logits.append(scale * (math.cos(angle) - margin * math.sin(margin)))
        each.append(math.log(sum(math.exp(v) for v in logits)) - logits[int(y[i])])
    return torch.tensor(each, dtype=torch.float64)


def made(golden, **settings):
    loss = ArcFace(classes=6, dim=8, **settings).double()
    loss.proxies.data = golden.proxies.clone()
    return loss


@pytest.mark.parametrize(("scale", "margin"), [(16.0, 0.5), (4.0, 1.5), (30.0, 0.0)])
def test_by_hand(golden, scale, margin):
    each = made(golden, scale=scale, margin=margin)(golden.z, golden.y).detach()
    torch.testing.assert_close(each, by_hand(golden.z, golden.y, golden.proxies, scale, margin))


def test_golden(golden):
    each = made(golden)(golden.z, golden.y).detach()
    torch.testing.assert_close(each, golden.each["arcface"], rtol=0, atol=1e-8)
    assert math.isclose(each.mean().item(), golden.value["arcface"], abs_tol=1e-8)


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


def test_several_labels_by_hand(golden, graded):
    """The mean over the labels of a sample of the cross-entropy with each, and the margin on all of them."""
    loss = ArcFace(classes=5, dim=8, scale=8.0, margin=0.3).double().with_relevance(graded.shared)
    unit, each = torch.nn.functional.normalize(loss.proxies.detach(), dim=1), []
    for i, labels in enumerate(graded.labels):
        logits = [
            8 * (math.cos(math.acos(s) + 0.3) if c in labels else s)
            for c, s in enumerate((unit @ golden.z[i]).tolist())
        ]
        total = math.log(sum(math.exp(v) for v in logits))
        each.append(sum(total - logits[c] for c in labels) / len(labels))
    torch.testing.assert_close(loss(golden.z, graded.ids), torch.tensor(each, dtype=torch.float64))
