import math

import pytest
import torch
from likewise.losses import GeneralizedLifted


def by_hand(e, y, margin, penalty, power):
    each, whole = [], 0
    for a in range(len(y)):
        d = [math.dist(e[a].tolist(), e[j].tolist()) for j in range(len(y))]
        pos = [math.exp(d[j]) for j in range(len(y)) if j != a and y[j] == y[a]]
        neg = [math.exp(margin - d[j]) for j in range(len(y)) if y[j] != y[a]]
        whole += bool(pos and neg)
        each.append(max(0.0, math.log(sum(pos)) + math.log(sum(neg))) if pos and neg else 0.0)
    lengths = [penalty * math.hypot(*row.tolist()) ** power for row in e]
    return torch.tensor([v * len(y) / max(whole, 1) + r for v, r in zip(each, lengths)], dtype=torch.float64)


@pytest.mark.parametrize("squared", [True, False])
def test_by_hand_and_golden(golden, squared):
    each = GeneralizedLifted(squared_penalty=squared)(golden.raw, golden.y)
    torch.testing.assert_close(each, by_hand(golden.raw, golden.y, 1.0, 0.005, 2 if squared else 1))
    name = "generalized_lifted" if squared else "generalized_lifted_plain_norm"
    assert math.isclose(each.mean().item(), golden.value[name], abs_tol=1e-8)


def test_golden_of_each_anchor(golden):
    each = GeneralizedLifted(penalty=0.0)(golden.raw, golden.y)
    torch.testing.assert_close(each, golden.each["generalized_lifted"], rtol=0, atol=1e-8)


def test_the_hinge_and_another_margin(golden):
    e = golden.raw * torch.tensor([1.0, 8.0]).repeat(6)[:, None]  # some anchors are far from everything
    torch.testing.assert_close(
        GeneralizedLifted(margin=-20.0, penalty=0.1)(e, golden.y), by_hand(e, golden.y, -20.0, 0.1, 2)
    )
    assert (GeneralizedLifted(margin=-20.0, penalty=0.0)(e, golden.y) == 0).any()


def test_anchors_without_a_class_mate_or_a_stranger_ask_for_nothing_and_do_not_count(golden):
    lonely = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    each = GeneralizedLifted(penalty=0.0)(golden.raw, lonely)
    assert (each[2:] == 0).all() and (each[:2] > 0).all()
    torch.testing.assert_close(each, by_hand(golden.raw, lonely, 1.0, 0.0, 2))
    # pytorch-metric-learning gives such a batch the push alone
    assert (GeneralizedLifted(penalty=0.0)(golden.raw, torch.arange(12)) == 0).all()
    assert (GeneralizedLifted(penalty=0.0)(golden.raw, torch.zeros(12, dtype=torch.int64)) == 0).all()


def test_long_embeddings_do_not_overflow(golden):
    e = (1000 * golden.raw).float().requires_grad_()
    each = GeneralizedLifted()(e, golden.y)
    each.mean().backward()
    torch.testing.assert_close(each.double(), _far_by_hand(1000 * golden.raw, golden.y), rtol=1e-5, atol=0)
    assert torch.isfinite(e.grad).all()


def _far_by_hand(e, y):
    """At such distances a logarithm of a sum is its largest term."""
    d = torch.tensor([[math.dist(a.tolist(), b.tolist()) for b in e] for a in e], dtype=torch.float64)
    same = y[:, None] == y
    far, near = d.masked_fill(~same, -math.inf).amax(1), d.masked_fill(same, math.inf).amin(1)
    return (far + 1 - near).clamp_min(0) + 0.005 * e.square().sum(1)
