"""SuperLoss on pairs: every pair weighed by hand, and its two running means."""

import math

import pytest
import torch
from likewise.losses import PairSuperLoss
from likewise.types import LikewiseError
from pytorch_metric_learning.losses import ContrastiveLoss
from scipy.special import lambertw
from torch.nn import functional as F


def pair_losses(z, y, margin=1.0, pull_margin=0.0):
    """(anchor, loss) of all pairs: the positives, and the negatives."""
    found = ([], [])
    for i in range(len(y)):
        for j in range(len(y)):
            d = math.dist(z[i].tolist(), z[j].tolist())
            value = max(0, d - pull_margin) if y[i] == y[j] else max(0, margin - d)
            if i != j:
                found[int(y[i] != y[j])].append((i, value))
    return found


def weight(value, usual, lam):
    x = max(-2 / math.e, (value - usual) / lam) / 2
    return math.e if x <= -1 / math.e else math.exp(-lambertw(x).real)


def by_hand(z, y, lam, usual=None, **margins):
    each = [0.0] * len(y)
    for side, pairs in enumerate(pair_losses(z, y, **margins)):
        mean = sum(v for _, v in pairs) / max(1, len(pairs)) if usual is None else usual[side]
        active = sum(v > 0 for _, v in pairs)
        for i, value in pairs:
            each[i] += len(y) * weight(value, mean, lam) * value / max(1, active)
    return torch.tensor(each, dtype=torch.float64)


@pytest.mark.parametrize("lam", [0.05, 0.25, 1.0])
@pytest.mark.parametrize("margins", [{}, {"margin": 1.3, "pull_margin": 0.4}])
def test_the_first_batch_by_hand(golden, lam, margins):
    found = PairSuperLoss(lam=lam, **margins).double()(golden.z, golden.y)
    torch.testing.assert_close(found, by_hand(golden.z, golden.y, lam, **margins), rtol=1e-6, atol=1e-8)


def test_later_batches_by_hand():
    """Each is judged by the mean of all pairs before it, and then joins them."""
    loss, past = PairSuperLoss(lam=0.3).double(), ([], [])
    for step in range(1, 5):
        g = torch.Generator().manual_seed(step)
        y = torch.arange(8) // 2
        z = F.normalize(torch.randn(8, 4, generator=g, dtype=torch.float64), dim=1)
        usual = None if step == 1 else [sum(side) / len(side) for side in past]
        torch.testing.assert_close(loss(z, y), by_hand(z, y, 0.3, usual))
        for side, new in zip(past, pair_losses(z, y)):
            side += [v for _, v in new]
        loss.after_step(step)
        assert loss.count.tolist() == [len(side) for side in past]
        assert loss.mean.tolist() == pytest.approx([sum(side) / len(side) for side in past])
    assert set(loss.observe_state()) == {"usual_pull", "usual_push"}


def test_the_usual_loss_is_the_mean_over_all_pairs_also_those_without_loss():
    """Samples on a circle: two of one class, and two of another, of which one is within the margin of the first two."""
    turn = torch.tensor([0.0, 0.1, 1.6, 0.7], dtype=torch.float64)
    z, y = torch.stack([turn.cos(), turn.sin()], 1), torch.tensor([0, 0, 1, 1])
    loss = PairSuperLoss().double()
    loss(z, y)
    loss.after_step(1)
    pull = (2 * math.sin(0.1 / 2) + 2 * math.sin(0.9 / 2)) / 2
    push = (1 - 2 * math.sin(0.7 / 2) + 1 - 2 * math.sin(0.6 / 2) + 0 + 0) / 4  # the two at 1.6 and 1.5 have no loss
    assert loss.count.tolist() == [4, 8]
    assert loss.mean.tolist() == pytest.approx([pull, push], abs=1e-7)


@pytest.mark.parity
def test_equal_weights_are_pytorch_metric_learnings_contrastive_loss(golden):
    other = ContrastiveLoss(pos_margin=0, neg_margin=1)(golden.z, golden.y)
    found = PairSuperLoss(lam=1e9).double()(golden.z, golden.y)
    assert math.isclose(found.mean().item(), other.item(), abs_tol=1e-6)


def test_weights_are_constants(golden):
    """The gradient is the weighted sum of the pairs' own."""
    z = golden.z.clone().requires_grad_()
    PairSuperLoss(lam=0.2).double()(z, golden.y).mean().backward()
    again = golden.z.clone().requires_grad_()
    total = 0.0
    for side, pairs in enumerate(pair_losses(golden.z, golden.y)):
        mean, same = sum(v for _, v in pairs) / len(pairs), side == 0
        active = sum(v > 0 for _, v in pairs)
        for i in range(len(golden.y)):
            for j in range(len(golden.y)):
                if i != j and bool(golden.y[i] == golden.y[j]) == same:
                    d = (again[i] - again[j]).norm()
                    value = d if same else (1 - d).relu()
                    total = total + weight(value.item(), mean, 0.2) * value / active
    total.backward()

    def along_the_sphere(grad):
        return grad - (grad * golden.z).sum(1, keepdim=True) * golden.z

    torch.testing.assert_close(along_the_sphere(z.grad), along_the_sphere(again.grad), rtol=1e-6, atol=1e-8)


def test_a_batch_without_one_kind_of_pair_leaves_its_mean_alone(golden):
    loss = PairSuperLoss()
    loss(golden.z.float(), golden.y)
    loss.after_step(1)
    before = loss.mean.clone()
    loss(golden.z.float(), torch.zeros_like(golden.y))  # no negatives
    loss.after_step(2)
    assert loss.mean[0] != before[0] and loss.mean[1] == before[1]
    loss.eval()
    loss(golden.z.float(), golden.y)
    after = loss.mean.clone()
    loss.after_step(3)
    assert torch.equal(loss.mean, after)  # in evaluation nothing is learned


def test_it_goes_on_from_its_state(golden):
    first, late = PairSuperLoss(lam=0.1), PairSuperLoss(lam=0.1)
    for part, step in ((first, 1), (first, 2)):
        part(golden.z.float(), golden.y)
        part.after_step(step)
    late.load_state_dict(first.state_dict())
    assert torch.equal(late(golden.half.float(), golden.y), first(golden.half.float(), golden.y))


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="got pull_margin=0.5, margin=0.2"):
        PairSuperLoss(margin=0.2, pull_margin=0.5)
