"""The contrastive form of the signal-to-noise ratio: pair by pair, and against another library."""

import math
import statistics

import pytest
import torch
from likewise.losses import SNRContrastive
from likewise.types import LikewiseError, Ref
from pytorch_metric_learning.losses import SignalToNoiseRatioContrastiveLoss
from torch.nn import functional as F


def ratio(a, b):
    return statistics.pvariance([p - q for p, q in zip(a, b)]) / statistics.pvariance(a)


def by_hand(z, y, margin, pull_margin, penalty):
    rows, y, size = z.tolist(), y.tolist(), len(y)
    pull, push = [0.0] * size, [0.0] * size
    active = [0, 0]
    for i in range(size):
        for j in range(size):
            if i == j:
                continue
            mates, r = y[i] == y[j], ratio(rows[i], rows[j])
            value = max(0.0, r - pull_margin if mates else margin - r)
            active[mates] += value > 0
            (pull if mates else push)[i] += value
    each = [
        size * pull[i] / max(active[1], 1) + size * push[i] / max(active[0], 1) + penalty * abs(sum(rows[i]))
        for i in range(size)
    ]
    return torch.tensor(each, dtype=torch.float64)


SETTINGS = [(0.8446, 0.3264, 0.1382), (1.9, 0.0, 0.0), (2.5, 1.5, 0.01)]


@pytest.mark.parametrize(("margin", "pull_margin", "penalty"), SETTINGS)
def test_by_hand(golden, margin, pull_margin, penalty):
    each = SNRContrastive(margin, pull_margin, penalty)(golden.z, golden.y)
    torch.testing.assert_close(each, by_hand(golden.z, golden.y, margin, pull_margin, penalty))


@pytest.mark.parity
def test_the_name_of_the_other_library_is_this_loss_on_unit_embeddings(golden):
    """SignalToNoiseRatioContrastiveLoss, the one of the study; the distance divides by the length itself."""
    other = SignalToNoiseRatioContrastiveLoss(pos_margin=0.2, neg_margin=1.0)
    mine = SNRContrastive(margin=1.0, pull_margin=0.2, penalty=0)(golden.z, golden.y).mean()
    assert math.isclose(mine.item(), other(golden.raw, golden.y).item(), rel_tol=1e-6)


def test_a_reference_of_other_samples(golden):
    """Rows of the reference are partners, never anchors; a batch as its own reference is the batch."""
    loss = SNRContrastive(margin=2.0, pull_margin=0.3264, penalty=0.0)
    own = Ref(golden.z, golden.y, torch.arange(12))
    torch.testing.assert_close(loss(golden.z, golden.y, own), loss(golden.z, golden.y))
    each = loss(golden.z[[0]], golden.y[[0]], Ref(golden.z[[1, 7]], golden.y[[1, 7]]))
    rows = golden.z.tolist()
    value = max(0.0, ratio(rows[0], rows[1]) - 0.3264) + max(0.0, 2 - ratio(rows[0], rows[7]))
    assert golden.y[0] == golden.y[1] != golden.y[7] and each.item() == pytest.approx(value)


def test_solved_classes_give_zero_and_equal_coordinates_a_finite_gradient(golden):
    z = F.one_hot(golden.y, 8).double().requires_grad_()
    each = SNRContrastive(penalty=0.0)(z, golden.y)
    each.mean().backward()
    assert (each == 0).all() and (z.grad == 0).all()
    z = golden.z.clone()
    z[0] = 8**-0.5  # no variance
    z.requires_grad_()
    SNRContrastive()(z, golden.y).mean().backward()
    assert torch.isfinite(z.grad).all()


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="got pull_margin=0.2, margin=0.1"):
        SNRContrastive(margin=0.1, pull_margin=0.2)
