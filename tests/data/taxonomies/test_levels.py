"""The levels of a class tree, by hand on a tree with paths of different lengths."""

import numpy as np

from likewise.data.taxonomies import class_tree

PATHS = [("animal", "cat"), ("animal", "cat"), ("animal", "dog", "hound"), ("animal",), ("plant", "dog"), ()]


def test_groups_heights_and_depths_by_hand():
    tree = class_tree(PATHS)
    assert tree.levels == 3 and tree.root == 0
    assert tree.group.tolist() == [
        [0, 0, 0, 0, 1, -1],
        [0, 0, 1, -1, 2, -1],  # the dog below plant is another node than the dog below animal
        [-1, -1, 0, -1, -1, -1],
    ]
    assert tree.depth.tolist() == [3, 3, 4, 2, 3, 1]
    # the root has height 4 (root, animal, dog, hound, class 2), animal 3, cat 1, plant 2
    assert tree.height.tolist() == [
        [4, 3, 1, 0, 0],
        [4, 3, 1, 0, 0],
        [4, 3, 2, 1, 0],
        [4, 3, 0, 0, 0],
        [4, 2, 1, 0, 0],
        [4, 0, 0, 0, 0],
    ]


def test_a_group_that_all_classes_share_is_above_the_root():
    tree, below = class_tree([("bird", "gull"), ("bird", "tern")]), class_tree([("gull",), ("tern",)])
    assert (tree.root, below.root) == (1, 0)
    assert np.array_equal(tree.depth, below.depth) and np.array_equal(tree.height, below.height)


def test_a_tree_without_ancestors():
    tree = class_tree([(), ()])
    assert tree.levels == 0 and tree.depth.tolist() == [1, 1] and tree.height.tolist() == [[1, 0], [1, 0]]
