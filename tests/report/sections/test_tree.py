"""The class tree: means by hand, similar classes side by side, groups of a taxonomy."""

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import is_valid_linkage, linkage

from likewise.report.section import Grouping
from likewise.report.sections.tree import class_means, leaves, make_tree
from likewise.report.write_report import group_classes


@pytest.mark.parity
def test_heights_are_those_of_average_linkage():
    mean = np.random.default_rng(0).normal(size=(12, 3))
    tree = make_tree(mean, np.full(12, 5))
    assert is_valid_linkage(tree.link) and np.allclose(
        np.sort(tree.link[:, 2]), np.sort(linkage(mean, "average")[:, 2])
    )
    assert sorted(tree.order) == list(range(12)) and tree.grouping is None and tree.note == ""


def test_the_largest_classes_are_shown_and_empty_ones_are_not():
    size = np.array([3, 0, 9, 5, 7])
    tree = make_tree(np.random.default_rng(0).normal(size=(5, 2)), size, most=3)
    assert tree.classes.tolist() == [2, 3, 4] and tree.note == "the 3 classes with the most samples, of 4"
    assert make_tree(np.zeros((3, 2)), np.array([1, 1, 0])) is None


def test_leaves_are_coloured_by_the_finest_grouping_that_colours_can_tell():
    def grouping(n):
        return Grouping(f"{n}", tuple(map(str, range(n))), np.arange(40) % n)

    mean, size = np.random.default_rng(0).normal(size=(40, 2)), np.ones(40, int)
    assert make_tree(mean, size, (grouping(3), grouping(9), grouping(20))).grouping == 1
    assert make_tree(mean, size, (grouping(20), grouping(30))).grouping == 0


def test_means_by_hand():
    z, y = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), np.arange(50) % 4
    mean = class_means(z, y, 5)
    for c in range(4):
        by_hand = sum(z[i].double() for i in range(50) if y[i] == c) / (y == c).sum()
        assert np.allclose(mean[c], by_hand)
    assert not mean[4].any()  # a class without samples


def test_similar_classes_are_neighbours():
    mean = np.array([[0.0], [9], [0.1], [9.1], [20]])
    order = leaves(mean).tolist()
    assert abs(order.index(0) - order.index(2)) == 1 and abs(order.index(1) - order.index(3)) == 1
    assert leaves(mean[:2]).tolist() == [0, 1]


def test_groups_are_levels_of_the_tree_that_tell_classes_apart():
    above = {
        "cat": ("animal", "mammal", "feline"), "dog": ("animal", "mammal", "canine"), "lion": ("animal", "mammal", "feline"),
        "owl": ("animal", "bird"),
    }  # fmt: skip
    level2, level3 = group_classes(("cat", "dog", "lion", "owl", "rock"), above)
    assert (
        level2.name == "level 2" and level2.names == ("mammal", "bird") and level2.of_class.tolist() == [0, 0, 0, 1, -1]
    )
    assert level3.names == ("feline", "canine") and level3.of_class.tolist() == [0, 1, 0, -1, -1]
    assert group_classes(("a", "b"), None) == () and group_classes(("cat", "owl"), above) == ()


def test_a_level_that_repeats_the_one_above_is_left_out():
    above = {"a": ("x", "x1"), "b": ("x", "x1"), "c": ("y", "y1")}
    assert [one.name for one in group_classes(("a", "b", "c"), above)] == ["level 1"]
