import math

import pytest
import torch
from bare_work import check_spec
from likewise.contracts import Miner
from likewise.losses import Margin
from likewise.types import LikewiseError, Tuples
from pytorch_metric_learning.losses import MarginLoss
from torch.nn import functional as F


def by_hand(z, y, triplets, beta, margin, nu=0.0, count="terms", pull=None):
    """Numbers of the anchors, whose mean is the paper's number; `beta` by class."""
    total, active = [0.0] * len(y), 0
    for t, (a, p, n) in enumerate(triplets):
        b = beta[int(y[a])]
        near = math.dist(z[a].tolist(), z[p].tolist()) if pull is None or pull[t] else 0.0
        pos = max(0.0, near - b + margin)
        neg = max(0.0, b - math.dist(z[a].tolist(), z[n].tolist()) + margin)
        total[a] += pos + neg
        active += {"terms": (pos > 0) + (neg > 0), "triplets": pos > 0 or neg > 0, "all": 1}[count]
    each = [v * len(y) / max(active, 1) + nu * sum(beta) for v in total]
    return torch.tensor(each, dtype=torch.float64)


def made(golden, **settings):
    return Margin(classes=6, miner=golden.miner, **settings).double()


@pytest.mark.parametrize("count", ["terms", "triplets", "all"])
@pytest.mark.parametrize(("beta", "margin", "nu"), [(1.2, 0.2, 0.0), (0.6, 0.2, 0.1), (1.0, 0.05, 0.0)])
def test_by_hand(golden, beta, margin, nu, count):
    loss = made(golden, beta=beta, margin=margin, nu=nu, count=count)
    loss.boundaries.data += torch.linspace(0, 0.3, 6, dtype=torch.float64)[:, None]
    found = by_hand(golden.z, golden.y, golden.miner.triplets, loss.boundaries[:, 0].tolist(), margin, nu, count)
    torch.testing.assert_close(loss(golden.z, golden.y).detach(), found)


def test_golden(golden):
    for beta in (0.6, 1.2):
        each = made(golden, beta=beta)(golden.z, golden.y).detach()
        assert math.isclose(each.mean().item(), golden.value[f"margin_{beta}"], abs_tol=1e-6)
        plain = golden.each[f"margin_{beta}"]  # before the common factor
        torch.testing.assert_close(each / each.sum(), plain / plain.sum(), rtol=0, atol=1e-6)
    either = made(golden, count="triplets")(golden.z, golden.y).mean().item()
    assert math.isclose(either, golden.value["margin_1.2_either"], abs_tol=1e-6)
    half = made(golden)(golden.half, golden.y).mean().item()
    assert math.isclose(half, golden.half_values["margin_1.2"], abs_tol=1e-6)


@pytest.mark.parity
@pytest.mark.parametrize("beta", [0.6, 1.2])
def test_value_and_gradients_agree_with_pytorch_metric_learning(golden, beta):
    mine = made(golden, beta=beta)
    other = MarginLoss(margin=0.2, beta=beta, nu=0, learn_beta=True, num_classes=6).double()
    a, b = golden.z.clone().requires_grad_(), golden.z.clone().requires_grad_()
    first = mine(F.normalize(a, dim=1), golden.y).mean()
    second = other(b, golden.y, tuple(torch.tensor(golden.miner.triplets).T))
    first.backward()
    second.backward()
    assert math.isclose(first.item(), second.item(), rel_tol=1e-5)
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mine.boundaries.grad[:, 0], other.beta.grad, rtol=1e-5, atol=1e-6)


class Swapped(Miner):
    """The fixed triplets, every second one with the pull taken out and a class mate to push."""

    def __init__(self, triplets=()):
        self.triplets = triplets

    def __call__(self, sim, pairs, dim, margin=None):
        a, p, n = torch.tensor(self.triplets).T
        pull = torch.arange(len(a)) % 2 == 0
        return Tuples(a, p, torch.where(pull, n, p), torch.ones_like(pull), pull)


@pytest.mark.parametrize("beta", [0.1, 0.6])  # below the margin the vanished pull still speaks to the boundary
def test_a_switched_triplet_pulls_nothing_and_pushes_a_class_mate(golden, beta):
    loss = Margin(classes=6, beta=beta, miner=Swapped(golden.miner.triplets)).double()
    pull = [t % 2 == 0 for t in range(12)]
    swapped = [(a, p, n if keep else p) for (a, p, n), keep in zip(golden.miner.triplets, pull)]
    found = by_hand(golden.z, golden.y, swapped, [beta] * 6, 0.2, pull=pull)
    torch.testing.assert_close(loss(golden.z, golden.y).detach(), found)


def test_one_boundary_for_all_or_one_that_stays(golden):
    single = made(golden, per_class=False)
    torch.testing.assert_close(single(golden.z, golden.y), made(golden)(golden.z, golden.y))
    single(golden.z, golden.y).mean().backward()
    per_class = made(golden)
    per_class(golden.z, golden.y).mean().backward()
    torch.testing.assert_close(single.boundaries.grad, per_class.boundaries.grad.sum(0, keepdim=True))
    assert not any(p.requires_grad for p in made(golden, learn=False).parameters())
    assert (made(golden, learn=False)(golden.z, golden.y) == made(golden)(golden.z, golden.y)).all()
    assert Margin(per_class=False)(golden.z, golden.y + 1000).shape == (12,)  # no table of classes, no bound on labels


@pytest.mark.parametrize(
    "text",
    ["Margin(per_class=False)", "Margin(learn=False, nu=0.1)", "Margin(miner=Switch(share=0.5), count='triplets')"],
)
def test_other_settings_keep_the_contract(text, bare):
    bare(check_spec, text)


def test_a_boundary_per_class_needs_classes(golden, graded):
    with pytest.raises(LikewiseError, match="Margin.*set per_class=False"):
        Margin()
    with pytest.raises(LikewiseError, match="one class per sample, got SharedLabels"):
        Margin(classes=5).with_relevance(graded.shared)
    assert Margin(per_class=False).with_relevance(graded.shared)(golden.z, graded.ids).isfinite().all()
