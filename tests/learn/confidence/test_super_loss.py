"""SuperLoss: the weight that minimises its objective, and the kinds of tau."""

import copy
import math

import pytest
import torch
from likewise.confidence import SuperLoss
from likewise.contracts import Confidence
from likewise.types import LikewiseError

from likewise.core.settings.spec import build, spec

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


@pytest.mark.parametrize("tau", ["mean", "ema"])
def test_it_goes_on_from_its_state_and_learns_in_training_only(tau):
    first, second = SuperLoss(3, tau=tau), SuperLoss(3, tau=tau)
    first(*INPUT, LOSSES)
    first.after_step(1)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for part in (first, second):
        part(*INPUT, LOSSES.sqrt())
        part.after_step(2)
    assert torch.equal(first(*INPUT, LOSSES).w, second(*INPUT, LOSSES).w)
    before = copy.deepcopy(second.state_dict())
    second.eval()
    second(*INPUT, LOSSES)
    second.after_step(3)
    torch.testing.assert_close(second.state_dict(), before, rtol=0, atol=0)


def test_spec_and_missing_losses():
    assert spec(build("SuperLoss(tau=2.5)", Confidence, classes=9)) == "SuperLoss(classes=9, tau=2.5)"
    with pytest.raises(LikewiseError, match="needs the training loss, got None"):
        SuperLoss(3)(*INPUT, None)
