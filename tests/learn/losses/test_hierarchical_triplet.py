"""Hierarchical triplet loss: tree, margins and loss by hand, pair by pair; what a checkpoint has to hold."""

import copy

import pytest
import torch
from likewise.losses import HierarchicalTriplet, Triplet
from likewise.types import LikewiseError, Ref
from torch.nn import functional as F

CLASSES, DIM, LEVELS, BETA = 5, 6, 4, 0.1


def drawn(seed=0, per_class=3, classes=CLASSES):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(classes).repeat_interleave(per_class)
    centre = torch.randn(classes, DIM, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    return F.normalize(centre[y] + 0.5 * torch.randn(len(y), DIM, generator=g, dtype=torch.float64), dim=1), y


def squared(u, v):
    return float((u - v).square().sum())


def mean_of(values):
    values = list(values)
    return sum(values) / len(values)


def tree_by_hand(z, y):
    """(s of every class, d_H of two classes) by the definitions, with every pair of samples."""
    rows = {c: [i for i in range(len(y)) if y[i] == c] for c in range(CLASSES)}
    s = {c: mean_of(squared(z[i], z[j]) for i in rows[c] for j in rows[c] if i != j) for c in rows}
    d0 = mean_of(s.values())
    d = {(p, q): mean_of(squared(z[i], z[j]) for i in rows[p] for j in rows[q]) for p in rows for q in rows if p != q}
    joined = {}
    for level in range(LEVELS + 1):
        threshold = d0 + level * (4 - d0) / LEVELS
        node = {c: {c} for c in rows}
        for p, q in d:
            if d[p, q] < threshold or level == LEVELS:
                for c in node[p] | node[q]:
                    node[c] = node[p] | node[q]
                for c in set(node[p]):
                    node[c] = node[p]
        for p, q in d:
            if q in node[p]:
                joined.setdefault((p, q), threshold)
    return s, joined


def by_hand(z, y, s=None, joined=None, power=2, margin=0.2):
    """1 / (2 |T|) sum of the violations, one value per anchor."""
    y, each, count = y.tolist(), [], 0
    for a in range(len(y)):
        total = 0.0
        for p in range(len(y)):
            for n in range(len(y)):
                if p != a and y[p] == y[a] and y[n] != y[a]:
                    alpha = margin if s is None else BETA + joined[y[a], y[n]] - s[y[a]]
                    near, far = squared(z[a], z[p]) ** (power / 2), squared(z[a], z[n]) ** (power / 2)
                    total += max(0.0, near - far + alpha)
                    count += 1
        each.append(total)
    return torch.tensor(each, dtype=torch.float64) * len(y) / (2 * count)


def with_tree(z, y, **changes):
    """The loss after one step on these samples, which is its first tree."""
    loss = HierarchicalTriplet(CLASSES, DIM, beta=BETA, levels=LEVELS, start=1, every=1, **changes).double()
    loss(z, y)
    loss.after_step(1)
    return loss


def test_before_the_first_tree_all_triplets_have_one_margin():
    z, y = drawn()
    loss = HierarchicalTriplet(CLASSES, DIM, margin=0.3, start=10)
    torch.testing.assert_close(loss(z, y), by_hand(z, y, margin=0.3))


@pytest.mark.parametrize("power", [1, 2])
def test_the_tree_gives_the_margins(power):
    z, y = drawn()
    loss = with_tree(z, y, squared=power == 2)
    s, joined = tree_by_hand(z, y)
    assert len(set(joined.values())) > 1  # otherwise the tree would not matter
    new, _ = drawn(1)
    torch.testing.assert_close(loss(new, y), by_hand(new, y, s, joined, power))


def test_a_bound_on_the_samples_of_a_class_changes_nothing_unless_it_is_wrong():
    z, y = drawn()
    free, bound, wrong = (with_tree(z, y, largest_class=most) for most in (None, 3, 2))
    assert torch.equal(free(z, y), bound(z, y))
    assert wrong(z, y).isnan().all()


def test_the_batch_as_reference():
    z, y = drawn()
    loss = with_tree(z, y, largest_class=3)
    torch.testing.assert_close(loss(z, y, Ref(z, y, torch.arange(len(y)))), loss(z, y))


def test_margins_are_constants_of_the_past():
    """A class that the last steps did not show keeps its distances; the tree forgets older samples of the others."""
    z, y = drawn()
    loss = with_tree(z, y)
    new, _ = drawn(1)
    some = y < 4
    loss(new[some], y[some])
    loss.after_step(2)
    s, joined = tree_by_hand(torch.where(some[:, None], new, z), y)
    torch.testing.assert_close(loss(z, y), by_hand(z, y, s, joined))


def test_steps_between_trees():
    z, y = drawn()
    loss = HierarchicalTriplet(CLASSES, DIM, start="1e", every="2e", per_pass=3)
    begun = []
    for step in range(1, 10):
        loss(z.float(), y)
        loss.after_step(step)
        begun.append(bool(loss.count.sum() == 0))
    assert [step for step, yes in enumerate(begun, 1) if yes] == [3, 9]


def test_a_checkpoint_holds_tree_and_sums():
    z, y = drawn()
    loss = with_tree(z, y)
    loss.every = 2
    loss(drawn(1)[0], y)
    loss.after_step(2)
    again = HierarchicalTriplet(CLASSES, DIM, beta=BETA, levels=LEVELS, start=1, every=2).double()
    again.load_state_dict(copy.deepcopy(loss.state_dict()))
    for one in (loss, again):
        one(drawn(2)[0], y)
        one.after_step(3)
    assert torch.equal(loss(z, y), again(z, y))


def test_a_batch_without_pairs_builds_no_tree():
    loss = HierarchicalTriplet(CLASSES, DIM, start=1, every=1)
    loss(drawn(per_class=1)[0].float(), torch.arange(CLASSES))
    loss.after_step(1)
    assert not loss.begun


@pytest.mark.parity
def test_with_one_triplet_it_is_half_the_triplet_loss():
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.reducers import MeanReducer

    z, y = drawn()
    theirs = TripletMarginLoss(margin=0.2, reducer=MeanReducer())(z, y)
    ours = HierarchicalTriplet(CLASSES, DIM, squared=False, margin=0.2)(z, y).mean()
    torch.testing.assert_close(2 * ours, theirs)


def test_bad_arguments():
    loss = HierarchicalTriplet(CLASSES, DIM)
    with pytest.raises(LikewiseError, match="per_pass must .*got start='1e'"):
        loss.after_step(1)
    assert Triplet().margin == loss.margin  # the margin before the first tree is the usual one
