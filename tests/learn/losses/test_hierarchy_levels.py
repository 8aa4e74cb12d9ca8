"""How many groups there are on every level, by numbers or by a tree; what they weigh; and losses like another."""

import pytest
from likewise.losses import ArcFace, Margin, ProxyAnchor, SoftTriple
from likewise.types import LikewiseError

from likewise.learn.losses._hierarchy_levels import class_vectors, copy_of_loss, level_weights, plan_by_tree, plan_sizes

TREE = {"a": ("x", "x1"), "b": ("x", "x2"), "c": ("y", "x1"), "d": ("y",), "e": ("y", "y2", "deep"), "f": ("x", "x1")}


def test_sizes():
    assert plan_sizes(200, None, 1) == [(200, 20)] and plan_sizes(200, None, 2) == [(200, 20), (20, 2)]
    assert plan_sizes(200, (50, 7), 2) == [(200, 50), (50, 7)]
    with pytest.raises(LikewiseError, match="must be three classes or more to form groups, got 2"):
        plan_sizes(2, None, 1)


def test_groups_of_a_tree():
    """A name that stands in two places is two groups; a class with fewer ancestors stands with its last."""
    fine, coarse = plan_by_tree(6, (2, 1), tuple("abcdef"), None, TREE)
    # x/x1, x/x2, y, y/x1, y/y2 in their order
    assert fine.tolist() == [0, 1, 3, 2, 4, 0] and coarse.tolist() == [0, 0, 1, 1, 1]
    assert plan_by_tree(6, 1, None, None, None) == [(6, 2)]
    with pytest.raises(LikewiseError, match="class_names must name each of the 7 classes, got 6 names"):
        plan_by_tree(7, 1, tuple("abcdef"), None, TREE)
    with pytest.raises(LikewiseError, match=r"depth must be at most 3, .* got \(4, 1\)"):
        plan_by_tree(6, (4, 1), tuple("abcdef"), None, TREE)


def test_weights():
    assert level_weights(0.3, 2) == [0.3, 0.3] and level_weights((1.0, 0.0), 2) == [1.0, 0.0]
    for bad in (float("nan"), float("inf"), -1.0, (1.0,)):
        with pytest.raises(LikewiseError, match="weight must be one number"):
            level_weights(bad, 2)


def test_a_loss_like_another():
    few = copy_of_loss(ArcFace(50, 8, scale=20, margin=0.2), classes=5)
    assert (few.classes, few.dim, few.scale, few.margin) == (5, 8, 20, 0.2) and class_vectors(few).shape == (5, 8)
    assert class_vectors(SoftTriple(5, 8, per_class=3)).shape == (15, 8)
    assert class_vectors(ProxyAnchor(5, 8)).requires_grad
    with pytest.raises(LikewiseError, match="got Margin"):
        class_vectors(Margin(classes=5))
