import math

import pytest
import torch
from likewise.losses import NormSoftmax, ProxyNCA
from likewise.types import LikewiseError
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import ProxyNCALoss
from torch.nn import functional as F

from likewise.core.distributed.sharded_proxies import shard


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


@pytest.mark.parametrize("with_own", [False, True])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_plain_distances_as_the_study_prints_them_by_hand(golden, scale, with_own):
    """Eq. 13 of Roth et al. 2020, with unit proxies and (scale=1) without a scale."""
    each = made(golden, scale=scale, positive_in_denominator=with_own, squared=False)(golden.z, golden.y).detach()
    want = []
    for row, own in zip(golden.z.tolist(), golden.y.tolist()):
        unit = [[v / math.hypot(*p) for v in p] for p in golden.proxies.tolist()]
        q = [scale * math.dist(row, p) for p in unit]
        total = sum(math.exp(-far) for c, far in enumerate(q) if with_own or c != own)
        want.append(-math.log(math.exp(-q[own]) / total))
    torch.testing.assert_close(each, torch.tensor(want, dtype=torch.float64), rtol=1e-7, atol=1e-7)


@pytest.mark.parity
def test_plain_distances_agree_with_pytorch_metric_learning(golden):
    """Whose sum includes the sample's own class."""
    far = LpDistance(normalize_embeddings=True, p=2, power=1)
    other = ProxyNCALoss(num_classes=6, embedding_size=8, softmax_scale=1, distance=far).double()
    other.proxies.data = golden.proxies.clone()
    mine = made(golden, scale=1.0, positive_in_denominator=True, squared=False)(golden.z, golden.y).mean()
    assert math.isclose(mine.item(), other(golden.z, golden.y).item(), rel_tol=1e-6)


def test_plain_distances_are_refused_by_sharding():
    with pytest.raises(LikewiseError, match="the loss must support sharded proxies, got ProxyNCA"):
        shard(ProxyNCA(classes=4, dim=2, squared=False))
    shard(ProxyNCA(classes=4, dim=2))


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
    with pytest.raises(LikewiseError, match=r"ProxyNCA: classes must be 2 or more, got classes=1"):
        ProxyNCA(classes=1, dim=2)
    one = ProxyNCA(classes=1, dim=2, positive_in_denominator=True)(torch.eye(2), torch.zeros(2, dtype=torch.int64))
    assert (one == 0).all()


@pytest.mark.parametrize("with_own", [True, False])
@pytest.mark.parametrize("squared", [True, False])
def test_several_labels_by_hand(golden, graded, with_own, squared):
    """The mean over the labels of a sample; the denominator leaves out all of them, or none."""
    loss = ProxyNCA(5, 8, scale=2.0, positive_in_denominator=with_own, squared=squared).double()
    loss.with_relevance(graded.shared)
    unit, each = torch.nn.functional.normalize(loss.proxies.detach(), dim=1), []
    for i, labels in enumerate(graded.labels):
        far = [float((golden.z[i] - unit[c]).norm()) for c in range(5)]
        logits = [-4 * d * d if squared else -2 * d for d in far]
        against = [math.exp(v) for c, v in enumerate(logits) if with_own or c not in labels]
        each.append(sum(math.log(sum(against)) - logits[c] for c in labels) / len(labels) if against else 0.0)
    torch.testing.assert_close(loss(golden.z, graded.ids), torch.tensor(each, dtype=torch.float64))
