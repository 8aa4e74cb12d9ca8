import math

import pytest
import torch
from likewise.losses import Quadruplet, quadruplet
from likewise.types import Ref, Tuples


def by_hand(z, quadruplets, margin, far_margin):
    """l = None: no third class, no second bracket."""
    rows, each = z.tolist(), []
    for a, p, n, other in quadruplets:
        pull = math.dist(rows[a], rows[p])
        value = max(0.0, pull - math.dist(rows[a], rows[n]) + margin)
        if other is not None:
            value += max(0.0, pull - math.dist(rows[other], rows[n]) + far_margin)
        each.append(value)
    return torch.tensor(each, dtype=torch.float64)


@pytest.mark.parametrize(("margin", "far_margin"), [(1.0, 0.5), (0.2, 0.2)])
def test_by_hand_and_golden(golden, monkeypatch, margin, far_margin):
    fourth = golden.quadruplets[:, 3]
    monkeypatch.setattr(quadruplet, "_third", lambda *_: (fourth, torch.ones(12, dtype=torch.bool)))
    each = Quadruplet(margin=margin, far_margin=far_margin, miner=golden.miner)(golden.z, golden.y)
    torch.testing.assert_close(each, by_hand(golden.z, golden.quadruplets.tolist(), margin, far_margin))
    if margin == 1.0:
        torch.testing.assert_close(each, golden.each["quadruplet"], rtol=0, atol=1e-8)
        assert math.isclose(each.mean().item(), golden.value["quadruplet"], abs_tol=1e-8)


def test_the_fourth_is_drawn_alike_from_all_samples_of_a_third_class(golden):
    a, p, n = torch.tensor(golden.miner.triplets).T
    yes = torch.ones(12, dtype=torch.bool)
    torch.manual_seed(0)
    drawn = torch.stack([quadruplet._third(golden.y, None, Tuples(a, p, n, yes, yes), None)[0] for _ in range(600)])
    for k in range(12):
        free = [j for j in range(12) if golden.y[j] not in (golden.y[a[k]], golden.y[n[k]])]
        share = torch.bincount(drawn[:, k], minlength=12) / 600
        assert share[[j for j in range(12) if j not in free]].sum() == 0
        assert (share[free] - 1 / len(free)).abs().max() < 0.07


def test_rows_of_the_reference_that_hold_nobody_are_never_drawn(golden):
    a, p, n = torch.tensor(golden.miner.triplets).T
    yes = torch.ones(12, dtype=torch.bool)
    used = torch.arange(12) < 10
    ref = Ref(golden.z, golden.y, torch.arange(12), used)
    drawn = torch.cat([quadruplet._third(golden.y, ref, Tuples(a, p, n, yes, yes), None)[0] for _ in range(50)])
    assert drawn.max() < 10


def test_without_a_third_class_the_second_bracket_is_left_out(golden):
    y = (torch.arange(12) >= 6).long()
    triplets = [(a, (a + 1) % 6 + 6 * (a >= 6), 11 - a) for a in range(12)]
    each = Quadruplet(miner=type(golden.miner)(triplets))(golden.z, y)
    torch.testing.assert_close(each, by_hand(golden.z, [(*t, None) for t in triplets], 1.0, 0.5))


def test_a_reference_of_other_samples(golden):
    batch, y, others = golden.z[[0, 0]], golden.y[[0, 0]], [1, 3, 6]
    # both anchors pull sample 1; whichever of 3 and 6 is the stranger, the other one is the fourth
    torch.manual_seed(0)
    each = Quadruplet(miner=type(golden.miner)([(0, 0, 1), (1, 0, 2)]))(
        batch, y, Ref(golden.z[others], golden.y[others])
    )
    torch.testing.assert_close(each, by_hand(golden.z, [(0, 1, 3, 6), (0, 1, 6, 3)], 1.0, 0.5))


def test_both_strangers_are_pushed_apart(golden):
    z = golden.z.clone().requires_grad_()
    triplets = [(0, 1, 3)]
    torch.manual_seed(0)
    Quadruplet(margin=0.0, far_margin=2.0, miner=type(golden.miner)(triplets))(z, golden.y).sum().backward()
    touched = (z.grad.abs().sum(1) > 0).nonzero().flatten().tolist()
    assert {0, 1, 3} < set(touched) and len(touched) == 4
    (fourth,) = set(touched) - {0, 1, 3}
    assert golden.y[fourth] not in (golden.y[0], golden.y[3])


def test_with_a_relevance_the_third_sample_is_a_negative_of_both(graded):
    y, r = graded.ids, graded.relevance
    t = Tuples(
        torch.tensor([1, 3]), torch.tensor([2, 4]), torch.tensor([5, 6]), torch.ones(2).bool(), torch.ones(2).bool()
    )
    seen = [set(), set()]
    for seed in range(200):
        torch.manual_seed(seed)
        third, has = quadruplet._third(y, None, t, r)
        assert has.all()
        for found, one in zip(seen, third.tolist(), strict=True):
            found.add(one)
    allowed = [{k for k in range(12) if graded.r[a][k] < 0.5 and graded.r[n][k] < 0.5} for a, n in ((1, 5), (3, 6))]
    assert seen == allowed
