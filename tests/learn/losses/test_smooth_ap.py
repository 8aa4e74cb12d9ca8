import math

import pytest
import torch
from likewise.losses import SmoothAP
from likewise.types import LikewiseError, Ref
from pytorch_metric_learning.losses import SmoothAPLoss
from torch.nn import functional as F

LONELY = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 5])


def by_hand(z, y, temperature, answers=None, labels=None, own=True):
    answers, labels = z if answers is None else answers, y if labels is None else labels
    each, has = [], 0
    for i in range(len(y)):
        s = [float(z[i] @ a) for a in answers]
        who = [j for j in range(len(labels)) if not (own and j == i)]
        mates = [j for j in who if labels[j] == y[i]]
        precision = 0.0
        for k in mates:
            above = {j: 1 / (1 + math.exp(-(s[j] - s[k]) / temperature)) for j in who if j != k}
            precision += (1 + sum(above[j] for j in mates if j != k)) / (1 + sum(above.values()))
        each.append(1 - precision / len(mates) if mates else 0.0)
        has += bool(mates)
    return torch.tensor(each, dtype=torch.float64) * len(y) / max(1, has)


@pytest.mark.parametrize("temperature", [0.01, 0.1])
@pytest.mark.parametrize("largest_class", [None, 4, 9])
def test_by_hand(golden, temperature, largest_class):
    for z in (golden.z, golden.half):
        for y in (golden.y, LONELY):
            found = SmoothAP(temperature=temperature, largest_class=largest_class)(z, y)
            torch.testing.assert_close(found, by_hand(z, y, temperature))


def layouts():
    yield torch.arange(2).repeat_interleave(8)
    yield torch.arange(8).repeat_interleave(2)
    yield torch.arange(16).repeat_interleave(4)
    yield torch.arange(4).repeat_interleave(16)
    yield torch.arange(4).repeat(6)  # not one class after another
    yield torch.arange(5).repeat_interleave(torch.tensor([2, 7, 3, 1, 11]))  # of different sizes, one alone
    yield torch.tensor([7, 3, 3, 0, 7, 0, 0, 3, 7, 7, 2, 2])


@pytest.mark.parametrize("y", layouts(), ids=lambda y: f"{len(y)}in{len(y.unique())}")
def test_perfect_separation_costs_nothing_whatever_the_classes(y):
    z = F.one_hot(y, 16).float()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    for z_, y_ in ((z, y), (z[order], y[order])):
        z_ = z_.clone().requires_grad_()
        each = SmoothAP()(z_, y_)
        assert (each.abs() < 1e-6).all()
        each.mean().backward()
        assert (z_.grad.abs() < 1e-4).all()


def test_answers_from_elsewhere(golden):
    found = SmoothAP(temperature=0.1)(golden.z, golden.y, Ref(golden.half, golden.y))
    torch.testing.assert_close(found, by_hand(golden.z, golden.y, 0.1, golden.half, golden.y, own=False))


def test_queries_with_more_mates_than_announced_are_nan(golden):
    """Classes of LONELY have 3, 2, 4 and 1 samples: a query of the third has 3 mates to find."""
    each = SmoothAP(largest_class=3)(golden.z, LONELY)
    assert torch.equal(each.isnan(), LONELY == 2)
    expected = by_hand(golden.z, LONELY, 0.01)
    torch.testing.assert_close(each[LONELY != 2], expected[LONELY != 2])


def test_gradient_in_one_pass_is_that_of_the_plain_way(golden):
    z = golden.z.clone().requires_grad_()
    for y in (golden.y, LONELY):
        (slope,) = torch.autograd.grad(SmoothAP(temperature=0.05)(z, y)[:7].sum(), z)
        plain = torch.func.grad(lambda z, y=y: SmoothAP(temperature=0.05)(z, y)[:7].sum())(z.detach())
        torch.testing.assert_close(slope, plain)
        assert slope.abs().max() > 0.01


@pytest.mark.parity
def test_differs_from_pytorch_metric_learning_by_the_query_itself():
    """As many classes as samples of each, in order: the one layout where that library counts classes rightly. There the query
    is one of its own answers: it stands above all others, and its own precision of 1 joins the mean."""
    y = torch.arange(4).repeat_interleave(4)
    z = F.normalize(torch.randn(16, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1)
    total = 0.0
    for i in range(16):
        s = (z[i] @ z.T).tolist()
        for k in (j for j in range(16) if y[j] == y[i]):
            above = {j: 1 / (1 + math.exp(-(s[j] - s[k]) / 0.01)) for j in range(16) if j != k}
            total += (1 + sum(v for j, v in above.items() if y[j] == y[i])) / (1 + sum(above.values())) / 4 / 16
    assert math.isclose(1 - total, SmoothAPLoss()(z, y), rel_tol=1e-5)
    assert not math.isclose(SmoothAP()(z, y).mean(), SmoothAPLoss()(z, y), rel_tol=1e-2)


def test_graded_by_hand(golden, graded):
    """A hit is a positive, and counts with its relevance r."""
    each, has = [], 0
    for i in range(12):
        pairs = [(float(golden.z[i] @ golden.z[j]), r) for j, r in graded.known(i)]
        hits, value = [(s, r) for s, r in pairs if r >= 0.5], 0.0
        for s, r in hits:
            before = sum(q / (1 + math.exp((s - t) / 0.1)) for t, q in hits if (t, q) != (s, r))
            rank = 1 + sum(1 / (1 + math.exp((s - t) / 0.1)) for t, q in pairs if (t, q) != (s, r))
            value += r * (r + before) / rank
        each.append(1 - value / sum(r for _, r in hits) if hits else 0.0)
        has += bool(hits)
    loss = SmoothAP(temperature=0.1).with_relevance(graded.relevance)
    torch.testing.assert_close(loss(golden.z, graded.ids), torch.tensor(each, dtype=torch.float64) * 12 / has)


def test_the_gradient_of_the_graded_loss(golden, graded):
    """Finite differences are as good as their step: 1e-6, so 1e-5 of the slope."""
    loss = SmoothAP(temperature=0.1).double().with_relevance(graded.relevance)
    turn = torch.linalg.qr(golden.z.T @ golden.z)[0]
    e = (golden.z @ turn).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda e: loss(torch.nn.functional.normalize(e, dim=1), graded.ids), (e,), eps=1e-6, atol=1e-5
    )


def test_a_bound_on_the_class_does_not_go_with_a_relevance(graded):
    with pytest.raises(LikewiseError, match="SmoothAP: with a relevance.*largest_class=4; drop it"):
        SmoothAP(largest_class=4).with_relevance(graded.relevance)
