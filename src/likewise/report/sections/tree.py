"""Section "Class tree": classes by the similarity of their means, and what the leaves are coloured by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import leaves_list

from likewise.report.class_tree import class_means, link_means
from likewise.report.records import Grouping
from likewise.report.section import Section, Study

LEAVES = 300
"""Classes in a tree, at most: more cannot be read."""

COLOURS = 12
"""Groups that can be told apart by colour."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of classes by the similarity of their means: merges as scipy's linkage has them (two nodes, height, size), the
    leaves from left to right, and what they are coloured by."""

    link: Float[np.ndarray, "M 4"]
    classes: Int[np.ndarray, "L"]  # the class that leaf number i is
    order: Int[np.ndarray, "L"]  # leaf numbers, similar ones side by side
    grouping: int | None  # which of the pool's groupings
    note: str


def grow(
    mean: Float[np.ndarray, "C D"],
    size: Int[np.ndarray, "C"],
    groupings: Sequence[Grouping] = (),
    most: int = LEAVES,
) -> Tree | None:
    """The tree of the classes that have samples; None where they are fewer than three.

    Args:
        size: samples of every class. Where there are more classes than `most`, the largest are shown.
        groupings: the leaves are coloured by the finest of them that has `COLOURS` groups at most, or else by the coarsest.
    """
    there = np.flatnonzero(size > 0)
    if len(there) < 3:
        return None
    shown = np.sort(there[np.argsort(-size[there], kind="stable")[:most]])
    link = link_means(mean[shown])
    left = len(there) - len(shown)
    note = f"the {len(shown)} classes with most samples of {len(there)}" if left else ""
    few = [g for g, one in enumerate(groupings) if len(one.names) <= COLOURS]
    by = few[-1] if few else 0 if groupings else None
    return Tree(link, shown, leaves_list(link).astype(np.int64), by, note)


def of_run(study: Study) -> Tree | None:
    if study.z is None or study.pool is None:
        return None
    label, classes = study.pool.label, len(study.pool.class_name)
    return grow(class_means(study.z, label, classes), np.bincount(label, minlength=classes), study.pool.groupings)


SECTION = Section("tree", "Class tree", "Classes by similarity", of_run=of_run)
