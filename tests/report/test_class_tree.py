"""Classes by the similarity of their means: means by hand, similar ones side by side, groups read off the ancestors."""

import numpy as np
import torch

from likewise.report.class_tree import class_means, group_classes, leaves


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
