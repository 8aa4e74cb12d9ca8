"""T-SINT: pairs cut by the teacher's distances, and cuts that move and are kept with the loss."""

import math

import numpy as np
import pytest
import torch
from likewise.contracts import Loss
from likewise.losses import Contrastive, CrossBatchMemory
from likewise.miners import TSINT
from likewise.similarity import compare
from likewise.types import LikewiseError, Pairs
from torch.nn import functional as F

from likewise.core.settings.spec import build, spec
from likewise.learn.miners.tsint import percentile


def units(seed, y=(0, 0, 0, 1, 1, 2, 2, 2), dim=4):
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(len(y), dim, generator=g, dtype=torch.float64), dim=1), torch.tensor(y)


def at_share(values, q):
    """The percentile by hand, on a line between the two nearest; None: nobody there."""
    values = sorted(values)
    place = q * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low) if values else None


def by_hand(teacher, y, cuts, share, classes, momentum):
    """New cuts and the pairs that stay, one pair at a time; `cuts` of None were never set."""
    size, right = len(y), (1 - share) ** 2
    d = [[math.dist(teacher[i].tolist(), teacher[j].tolist()) for j in range(size)] for i in range(size)]
    pos = [(i, j) for i in range(size) for j in range(size) if i != j and y[i] == y[j]]
    neg = [(i, j) for i in range(size) for j in range(size) if y[i] != y[j]]
    moved = []
    for old, pairs, q in zip(cuts, (pos, neg), (right, (1 - right) / (classes - 1))):
        now = at_share([d[i][j] for i, j in pairs], q)
        moved.append(old if now is None else now if old is None else momentum * old + (1 - momentum) * now)
    room = 1e-9  # a cut may be the distance of a pair itself
    keep = (
        {(i, j) for i, j in pos if d[i][j] <= moved[0] + room},
        {(i, j) for i, j in neg if d[i][j] >= moved[1] - room},
    )
    return moved, keep


def kept(mask):
    return {tuple(v) for v in mask.nonzero().tolist()}


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_by_hand_batch_after_batch(share):
    miner, cuts = TSINT(classes=3, share=share, cut_momentum=0.7).double(), (None, None)
    for seed in range(4):
        teacher, y = units(seed)
        student, _ = units(seed + 10)
        cuts, (pos, neg) = by_hand(teacher, y, cuts, share, 3, 0.7)
        miner.see_teacher(teacher)
        found = miner(*compare(student, y), 4)
        assert miner.cuts.tolist() == pytest.approx(cuts)
        assert kept(found.pos) == pos and kept(found.neg) == neg


@pytest.mark.parity
@pytest.mark.parametrize("q", [0.0, 0.004, 0.36, 0.64, 1.0])
def test_percentiles_agree_with_numpy(q):
    x = torch.rand(9, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.rand(9, 7, generator=torch.Generator().manual_seed(1)) < 0.4
    assert float(percentile(x, mask, q)) == pytest.approx(np.percentile(x[mask].numpy(), 100 * q), abs=1e-6)
    one = torch.zeros_like(mask)
    assert percentile(x, one, q).isnan()
    one[3, 2] = True
    assert percentile(x, one, q) == x[3, 2]


def test_the_share_of_pairs_kept_is_that_of_right_ones():
    """Uniform noise of 20 % leaves 64 % of the positives right, and makes 0.36 / (C - 1) of the negatives wrong."""
    y = torch.arange(400) % 10
    z = F.normalize(torch.randn(400, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    miner = TSINT(classes=10, share=0.2)
    miner.see_teacher(z)
    sim, pairs = compare(z, y)
    found = miner(sim, pairs, 16)
    assert found.pos.sum() / pairs.pos.sum() == pytest.approx(0.64, abs=1e-3)
    assert 1 - found.neg.sum() / pairs.neg.sum() == pytest.approx(0.04, abs=1e-3)


def test_it_finds_wrong_labels_that_a_teacher_sees():
    truth = torch.arange(60) % 3
    z = F.normalize(torch.eye(3)[truth] + 0.1 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    y = truth.clone()
    y[:6] = (y[:6] + 1) % 3
    miner = TSINT(classes=3, share=0.1)
    miner.see_teacher(z)
    sim, pairs = compare(z, y)
    found = miner(sim, pairs, 3)
    same = truth[:, None] == truth[None, :]
    assert (found.pos & ~same).sum() < 0.1 * (pairs.pos & ~same).sum()
    assert (found.pos & same).sum() > 0.95 * (pairs.pos & same).sum()
    assert (found.neg & same).sum() < 0.2 * (pairs.neg & same).sum()


def test_one_look_moves_the_cuts_once():
    miner = TSINT(classes=3)
    z, y = units(0)
    other, _ = units(1)
    for teacher in (z, other):
        miner.see_teacher(teacher)
        first = miner(*compare(z, y), 4)
        cuts = miner.cuts.clone()
        again = miner(*compare(z, y), 4)
        assert torch.equal(miner.cuts, cuts) and torch.equal(first.pos, again.pos) and torch.equal(first.neg, again.neg)
    miner.eval()
    miner.see_teacher(z)
    miner(*compare(z, y), 4)
    assert torch.equal(miner.cuts, cuts)


def test_a_batch_without_a_kind_of_pair_leaves_its_cut_alone():
    miner = TSINT(classes=3)
    z, y = units(0)
    lonely = torch.arange(8)
    miner.see_teacher(z)
    found = miner(*compare(z, lonely), 4)
    assert miner.cuts[0] == math.inf and torch.isfinite(miner.cuts[1]) and not found.pos.any()
    miner.see_teacher(z)
    miner(*compare(z, y), 4)
    before = miner.cuts.clone()
    miner.see_teacher(z)
    found = miner(*compare(z, torch.zeros_like(y)), 4)
    assert miner.cuts[0] != before[0] and miner.cuts[1] == before[1] and not found.neg.any()


def test_cuts_travel_with_the_loss():
    text = "Contrastive(miner=TSINT(share=0.3))"
    first, late = (build(text, Loss, classes=3) for _ in range(2))
    z, y = units(0)
    first.miner.see_teacher(z)
    first(z, y)
    assert torch.isfinite(first.state_dict()["miner.cuts"]).all() and not list(first.parameters())
    late.load_state_dict(first.state_dict())
    teacher, _ = units(1)
    for loss in (first, late):
        loss.miner.see_teacher(teacher)
    assert torch.equal(first(z, y), late(z, y)) and torch.equal(first.miner.cuts, late.miner.cuts)
    assert spec(late) == "Contrastive(miner=TSINT(classes=3, share=0.3))"


def test_gradients_of_every_order_see_the_same_pairs():
    loss = build("Contrastive(miner=TSINT(share=0.3))", Loss, classes=3)
    z, y = units(0)
    loss.miner.see_teacher(units(1)[0])
    x = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(x, y).mean(), x)
    (recorded,) = torch.autograd.grad(loss(x, y).mean(), x, create_graph=True)
    torch.testing.assert_close(slope, recorded)
    masks = loss.miner(*compare(z, y), 4)
    plain = Contrastive(miner=Fixed(masks))
    torch.testing.assert_close(loss(z, y), plain(z, y))


class Fixed(TSINT):
    """These pairs, whatever comes."""

    def __init__(self, masks):
        super().__init__(classes=3)
        self.masks = masks

    def __call__(self, sim, pairs, dim, margin=None):
        return Pairs(self.masks.pos, self.masks.neg)


def test_waits_for_nothing_and_takes_16_bits():
    miner = TSINT(classes=3).to("meta")
    z, y = (t.to("meta") for t in units(0))
    miner.see_teacher(z)
    assert miner(*compare(z, y), 4).pos.shape == (8, 8)
    miner = TSINT(classes=3)
    z, y = units(0)
    miner.see_teacher(z.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        miner(*compare(z, y), 4)
    assert miner.cuts.dtype == torch.float32 and torch.isfinite(miner.cuts).all()


def test_bad_use():
    z, y = units(0)
    miner = TSINT(classes=3)
    with pytest.raises(LikewiseError, match=r"call see_teacher\(z\) before the loss"):
        Contrastive(miner=miner)(z, y)
    miner.see_teacher(z[:5])
    with pytest.raises(LikewiseError, match=r"got \(8, 8\) pairs and 5 samples of the teacher"):
        Contrastive(miner=miner)(z, y)
    miner.see_teacher(z)
    with pytest.raises(LikewiseError, match="without a memory"):
        CrossBatchMemory(dim=4, loss=Contrastive(miner=miner), size=4)(z, y)
