import math

import pytest
import torch
from torch.nn import functional as F

from likewise.losses import NormSoftmax, ProxyNCA
from likewise.types import LikewiseError


def by_hand(z, y, proxies, scale, with_own):
    each = []
    for i in range(len(y)):
        q = []
        for c in range(len(proxies)):
            length = math.sqrt(sum(float(v) ** 2 for v in proxies[c]))
            q.append(sum((scale * float(a) - scale * float(b) / length) ** 2 for a, b in zip(z[i], proxies[c])))
        own = int(y[i])
        each.append(q[own] + math.log(sum(math.exp(-q[c]) for c in range(len(q)) if with_own or c != own)))
    return torch.tensor(each, dtype=torch.float64)


def made(golden, **settings):
    loss = ProxyNCA(classes=6, dim=8, **settings).double()
    loss.proxies.data = golden.proxies.clone()
    return loss


@pytest.mark.parametrize("with_own", [False, True])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_by_hand(golden, scale, with_own):
    each = made(golden, scale=scale, positive_in_denominator=with_own)(golden.z, golden.y).detach()
    torch.testing.assert_close(each, by_hand(golden.z, golden.y, golden.proxies, scale, with_own))


@pytest.mark.parametrize("scale", [1, 3])
def test_golden(golden, scale):
    each = made(golden, scale=scale)(golden.z, golden.y).detach()
    torch.testing.assert_close(each, golden.each[f"proxy_nca_{scale}"], rtol=0, atol=1e-8)
    assert math.isclose(each.mean().item(), golden.value[f"proxy_nca_{scale}"], abs_tol=1e-8)


def test_the_newer_form_is_a_softmax_of_temperature_one_eighteenth(golden):
    other = NormSoftmax(classes=6, dim=8, temperature=1 / 18).double()
    other.proxies.data = golden.proxies.clone()
    mine = made(golden, positive_in_denominator=True)
    torch.testing.assert_close(mine(golden.z, golden.y), other(golden.z, golden.y))


def test_a_solved_batch_goes_below_zero_but_not_below_its_bound():
    loss = ProxyNCA(classes=2, dim=2).double()
    loss.proxies.data = torch.tensor([[5.0, 0.0], [-0.1, 0.0]], dtype=torch.float64)
    z = F.normalize(loss.proxies.detach(), dim=1)
    each = loss(z, torch.arange(2))
    torch.testing.assert_close(each, torch.full_like(each, -4 * 3.0**2))  # + log(C - 1) = 0


def test_the_last_class_has_a_neighbour_too(golden):
    """Labels wrap around where the sum over the other classes is read off."""
    y = torch.full_like(golden.y, 5)
    found = made(golden)(golden.z, y).detach()
    torch.testing.assert_close(found, by_hand(golden.z, y, golden.proxies, 3.0, False))


def test_proxies_start_as_in_the_paper():
    torch.manual_seed(0)
    assert ProxyNCA(classes=500, dim=64).proxies.std().item() == pytest.approx(1 / 8, rel=0.02)


def test_bad_settings():
    with pytest.raises(LikewiseError, match="ProxyNCA: scale must be above 0, got 0"):
        ProxyNCA(classes=3, dim=2, scale=0.0)
    with pytest.raises(LikewiseError, match=r"ProxyNCA: classes must be 2 or more, got classes=1"):
        ProxyNCA(classes=1, dim=2)
    one = ProxyNCA(classes=1, dim=2, positive_in_denominator=True)(torch.eye(2), torch.zeros(2, dtype=torch.int64))
    assert (one == 0).all()
