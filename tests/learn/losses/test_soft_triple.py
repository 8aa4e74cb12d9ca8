import math

import pytest
import torch
from likewise.losses import CosFace, SoftTriple
from torch.nn import functional as F

STUDY = {"per_class": 2, "scale": 8.0}


def by_hand(z, y, centres, classes, scale, gamma, tau, margin):
    """`centres` class by class, as [class][centre][coordinate]."""
    unit = [[[v / math.hypot(*w) for v in w] for w in group] for group in centres.tolist()]
    k, apart = len(unit[0]), 0.0
    for group in unit:
        for a in range(k):
            for b in range(a + 1, k):
                apart += math.sqrt(2 + 1e-5 - 2 * sum(p * q for p, q in zip(group[a], group[b])))
    extra = tau * apart / (classes * k * (k - 1)) if k > 1 else 0.0
    each = []
    for i in range(len(y)):
        logits = []
        for c, group in enumerate(unit):
            s = [sum(float(p) * q for p, q in zip(z[i], w)) for w in group]
            share = [math.exp(v / gamma) for v in s]
            total = sum(e * v for e, v in zip(share, s)) / sum(share)
            logits.append(scale * (total - margin * (c == int(y[i]))))
        each.append(math.log(sum(math.exp(v) for v in logits)) - logits[int(y[i])] + extra)
    return torch.tensor(each, dtype=torch.float64)


def by_class(centres, classes):
    """Rows of the parameter (round by round) as [class, centre, coordinate]."""
    return centres.view(-1, classes, centres.shape[1]).transpose(0, 1)


def made(golden, **settings):
    """The fixed centres stand class by class; ours stand round by round."""
    loss = SoftTriple(classes=6, dim=8, **settings).double()
    if loss.per_class == 2:
        loss.centres.data = golden.centres.view(6, 2, 8).transpose(0, 1).reshape(12, 8).clone()
    return loss


@pytest.mark.parametrize(
    "settings",
    [STUDY, {"per_class": 2}, {"per_class": 1, "tau": 0.3}, {"per_class": 5, "gamma": 0.02, "tau": 1.0, "margin": 0.3}],
)
def test_by_hand(golden, settings):
    torch.manual_seed(0)
    loss = made(golden, **settings)
    each = loss(golden.z, golden.y).detach()
    found = by_hand(
        golden.z, golden.y, by_class(loss.centres.detach(), 6), 6, loss.scale, loss.gamma, loss.tau, loss.margin
    )
    torch.testing.assert_close(each, found)


def test_golden(golden):
    torch.testing.assert_close(
        made(golden, tau=0.0, **STUDY)(golden.z, golden.y).detach(), golden.each["soft_triple"], rtol=0, atol=1e-8
    )
    value = made(golden, **STUDY)(golden.z, golden.y).mean().item()
    plain = made(golden, tau=0.0, **STUDY)(golden.z, golden.y).mean().item()
    assert math.isclose(value, golden.value["soft_triple"], abs_tol=1e-8)
    assert math.isclose(value - plain, golden.value["soft_triple_regulariser"], abs_tol=1e-8)


@pytest.mark.parametrize("settings", [{"per_class": 3, "tau": 2.0}, {"per_class": 1}])
def test_gradients_in_closed_form_are_those_of_autograd(golden, settings):
    torch.manual_seed(0)
    loss = made(golden, **settings)

    def value(z, centres):
        return torch.func.functional_call(loss, {"centres": centres}, (z, golden.y))

    given = (golden.z.clone().requires_grad_(), loss.centres.detach().clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda z, c: value(F.normalize(z, dim=1), c).mean(), given)
    assert torch.autograd.gradgradcheck(lambda z, c: value(F.normalize(z, dim=1), c).mean(), given)
    weight = torch.rand(len(golden.y), dtype=torch.float64)
    closed = torch.autograd.grad((value(*given) * weight).sum(), given)
    recorded = torch.func.grad(lambda z, c: (value(z, c) * weight).sum(), (0, 1))(*(g.detach() for g in given))
    torch.testing.assert_close(closed, recorded)


def test_one_centre_a_class_is_a_softmax_with_margin(golden):
    one, other = SoftTriple(classes=6, dim=8, per_class=1).double(), CosFace(6, 8, scale=20.0, margin=0.01).double()
    other.proxies.data = one.centres.data
    torch.testing.assert_close(one(golden.z, golden.y), other(golden.z, golden.y))


def test_gradient_is_finite_where_centres_coincide():
    for dtype in (torch.float32, torch.float64):
        loss = SoftTriple(classes=3, dim=4, per_class=3).to(dtype)
        loss.centres.data = loss.centres.data[:3].repeat(3, 1)
        z = F.normalize(loss.centres.detach()[:3], dim=1).requires_grad_()
        loss(z, torch.arange(3)).mean().backward()
        assert torch.isfinite(z.grad).all() and torch.isfinite(loss.centres.grad).all()


def test_several_labels_are_the_mean_over_them(golden, graded):
    """With the margin 0 the cross-entropy is linear in the targets; the margin is on the logits of all labels of a sample."""
    loss = SoftTriple(classes=5, dim=8, margin=0.0).double()
    each = [
        torch.stack([loss(golden.z[i : i + 1], torch.tensor([c]))[0] for c in labels]).mean()
        for i, labels in enumerate(graded.labels)
    ]
    torch.testing.assert_close(loss.with_relevance(graded.shared)(golden.z, graded.ids), torch.stack(each))
    loss.margin = 0.1
    alone = graded.labels[7]  # all five labels: a margin on every logit changes nothing but the own ones, by as much
    assert len(alone) == 5
    torch.testing.assert_close(loss(golden.z, graded.ids)[7], each[7])
