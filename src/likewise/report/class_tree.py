"""Class means, their average linkage, and the groups of classes at every level of a taxonomy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import pdist
from torch import Tensor

from likewise.core.class_sums import class_sums
from likewise.report.records import Grouping


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


def group_classes(
    class_name: Sequence[str], above: Mapping[str, Sequence[str]] | None, word: str = "level"
) -> tuple[Grouping, ...]:
    """Return a grouping for each level of a taxonomy, coarsest first.

    A level is left out if it has one group, if every class has its own group, or if it equals the level above.

    Args:
        above: class name to its ancestors, coarsest first. A class may be missing, and paths may differ in length.
        word: the name of a grouping is this word and its depth: "level 1".
    """
    paths = [tuple((above or {}).get(name, ())) for name in class_name]
    found: list[Grouping] = []
    for depth in range(1, max(map(len, paths), default=0) + 1):
        number: dict[tuple[str, ...], int] = {}
        group = [number.setdefault(path[:depth], len(number)) if len(path) >= depth else -1 for path in paths]
        same = found and np.array_equal(found[-1].of_class, group)
        if 1 < len(number) < sum(g >= 0 for g in group) and not same:
            names = tuple(path[-1] for path in number)
            found.append(Grouping(f"{word} {depth}", names, np.array(group, np.int64)))
    return tuple(found)
