"""Levels of a class tree as numbers: the group of every class on every level, and the heights of its ancestors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True, eq=False)
class ClassTree:
    """A class tree with C classes. Level 1 is the coarsest; the paths of classes may differ in length.

    Classes are leaves, one below their last ancestor. The root is the lowest node above all classes: a group that all classes
    share lies above it. The height of a node is the number of steps to the lowest class below it.
    """

    group: Int[np.ndarray, "L C"]  # group of every class on every level; -1 = its path ends above this level
    root: int  # number of coarsest levels that all classes share
    depth: Int[np.ndarray, "C"]  # steps from the root to the class
    height: Int[
        np.ndarray, "C S"
    ]  # height of the ancestor of a class 0, 1, ... steps below the root; 0 from the class on

    @property
    def levels(self) -> int:
        """Number of levels, without the classes themselves."""
        return len(self.group)


def class_tree(paths: Sequence[Sequence[str]]) -> ClassTree:
    """Return the tree of classes from the ancestors of each class, coarsest first.

    Nodes with the same name below different ancestors are different nodes.
    """
    length = np.array([len(path) for path in paths])
    group = np.full((length.max(initial=0), len(paths)), -1)
    for level in range(len(group)):
        number: dict[tuple[str, ...], int] = {}
        for c, path in enumerate(paths):
            if len(path) > level:
                group[level, c] = number.setdefault(tuple(path[: level + 1]), len(number))
    root = int(np.cumprod((group == 0).all(1)).sum())
    depth = length + 1 - root
    height = np.zeros((len(paths), depth.max(initial=0) + 1), np.int64)
    height[:, 0] = depth.max(initial=0)
    for level in range(root, len(group)):
        here = np.flatnonzero(group[level] >= 0)
        lowest = np.zeros(group[level].max() + 1, np.int64)
        np.maximum.at(lowest, group[level, here], depth[here])
        height[here, level + 1 - root] = lowest[group[level, here]] - (level + 1 - root)
    return ClassTree(group, root, depth, height)
