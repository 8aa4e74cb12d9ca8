"""The tree of classes: merges as scipy has them, the largest classes, and what leaves are coloured by."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage, linkage

from likewise.report.records import Grouping
from likewise.report.sections.tree import make_tree


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
