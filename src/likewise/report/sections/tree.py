"""Section "Class tree": average linkage of the class means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import pdist
from torch import Tensor

from likewise.core.class_sums import class_sums
from likewise.report.section import Grouping, Section, Study

MAX_TREE_CLASSES = 300
"""Largest number of classes in the tree; more leaves cannot be read."""

MAX_GROUP_COLOURS = 12
"""Largest number of groups with distinct colours."""


@dataclass(frozen=True, eq=False)
class Tree:
    """The tree of the class means: merges in the format of scipy's linkage (two nodes, height, size), and the leaves."""

    link: Float[np.ndarray, "M 4"]
    classes: Int[np.ndarray, "L"]  # class of each leaf
    order: Int[np.ndarray, "L"]  # leaf numbers, similar classes side by side
    grouping: int | None  # index of the grouping of the pool that colours the leaves
    note: str


def make_tree(
    mean: Float[np.ndarray, "C D"],
    size: Int[np.ndarray, "C"],
    groupings: Sequence[Grouping] = (),
    most: int = MAX_TREE_CLASSES,
) -> Tree | None:
    """Return the tree of the classes that have samples; None for fewer than three classes.

    Args:
        size: number of samples of every class.
        groupings: candidates for the colours of the leaves. The tree uses the finest one with at most
            `MAX_GROUP_COLOURS` groups, otherwise the coarsest one.
        most: largest number of classes; the classes with the most samples are shown.
    """
    present = np.flatnonzero(size > 0)
    if len(present) < 3:
        return None
    shown = np.sort(present[np.argsort(-size[present], kind="stable")[:most]])
    link = link_means(mean[shown])
    left = len(present) - len(shown)
    note = f"the {len(shown)} classes with the most samples, of {len(present)}" if left else ""
    few = [g for g, one in enumerate(groupings) if len(one.names) <= MAX_GROUP_COLOURS]
    by = few[-1] if few else 0 if groupings else None
    return Tree(link, shown, leaves_list(link).astype(np.int64), by, note)


def of_run(study: Study) -> Tree | None:
    if study.z is None or study.pool is None:
        return None
    label, classes = study.pool.label, len(study.pool.class_name)
    return make_tree(class_means(study.z, label, classes), np.bincount(label, minlength=classes), study.pool.groupings)


def class_means(z: Float[Tensor, "N D"], label: Int[np.ndarray, "N"], classes: int) -> Float[np.ndarray, "C D"]:
    """Return the mean embedding of every class; zeros for a class without samples."""
    y = torch.as_tensor(label)
    total = class_sums(z, y, classes, torch.float64)
    return (total / y.bincount(minlength=classes).clamp_min(1)[:, None]).numpy()


def link_means(mean: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "m 4"]:
    """Return the average linkage of class means in scipy's format, with the leaves ordered by similarity."""
    distance = pdist(mean)
    return optimal_leaf_ordering(linkage(distance, "average"), distance)


def leaves(mean: Float[np.ndarray, "M D"]) -> Int[np.ndarray, "M"]:
    """Return an order of the classes that puts similar classes side by side."""
    return np.arange(len(mean)) if len(mean) < 3 else leaves_list(link_means(mean)).astype(np.int64)


SECTION = Section("tree", "Class tree", "Classes by similarity", of_run=of_run, folded=True)
