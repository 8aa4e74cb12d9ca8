"""SuperLoss: the weight that minimises its objective, and the kinds of tau."""

import math

import pytest
import torch
from likewise.confidence import SuperLoss
from likewise.types import LikewiseError

B = 7
INPUT = torch.zeros(B, 4), torch.zeros(B, dtype=torch.int64), torch.arange(B)
LOSSES = torch.tensor([0.05, 0.4, 1.0, 1.7, 2.5, 6.0, 40.0])


def by_hand(loss, tau, lam):
    """The s that minimises (l - tau) s + lambda (log s)^2, tried on a fine grid; e where the minimum has no end."""
    if (loss - tau) / lam <= -2 / math.e:
        return math.e
    grid = [math.exp(-v / 2000) for v in range(-2000, 12_000)]
    return min(grid, key=lambda s: (loss - tau) * s + lam * math.log(s) ** 2)


@pytest.mark.parametrize(("tau", "lam"), [(1.0, 1.0), (2.0, 0.25)])
def test_by_hand(tau, lam):
    trust = SuperLoss(3, lam, tau)(*INPUT, LOSSES)
    expected = torch.tensor([by_hand(v, tau, lam) for v in LOSSES.tolist()])
    torch.testing.assert_close(trust.w, expected, rtol=2e-3, atol=0)
    assert (trust.w > 0).all() and (trust.w <= math.e * (1 + 1e-6)).all() and trust.w[0] > 1
    assert trust.threshold == tau and torch.equal(trust.suspicion, LOSSES)


def test_kinds_of_tau():
    assert abs(float(SuperLoss(50, tau="log_classes")(*INPUT, LOSSES).threshold) - math.log(50)) < 1e-6
    for tau, second in (("mean", (LOSSES.mean() + (2 * LOSSES).mean()) / 2), ("ema", LOSSES.mean() * (0.8 + 0.2 * 2))):
        part = SuperLoss(3, tau=tau, rate=0.2)
        for step, (factor, expected) in enumerate(((1, LOSSES.mean()), (2, LOSSES.mean()), (1, second)), 1):
            torch.testing.assert_close(part(*INPUT, factor * LOSSES).threshold, expected)
            part.after_step(step)


def test_broken_losses_and_gradients():
    losses = torch.tensor([1.0, torch.nan, 2.0, torch.inf, 1.5, -torch.inf, 1.0], requires_grad=True)
    for tau in ("mean", "ema", "log_classes", 1.0):
        trust = SuperLoss(3, tau=tau)(*INPUT, losses)
        assert (trust.w == 0).tolist() == [False, True, False, True, False, True, False]
        assert trust.w.isfinite().all() and not trust.w.requires_grad
    assert (SuperLoss(3)(*INPUT, torch.full((B,), torch.nan)).w == 0).all()


def test_missing_losses():
    with pytest.raises(LikewiseError, match="needs the training loss, got None"):
        SuperLoss(3)(*INPUT, None)
