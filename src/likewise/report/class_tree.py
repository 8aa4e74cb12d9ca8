"""Classes by the similarity of their means, and the groups that a tree of classes puts them into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import pdist
from torch import Tensor

from likewise.numerics.class_sums import class_sums
from likewise.report.records import Grouping


def class_means(z: Float[Tensor, "N D"], label: Int[np.ndarray, "N"], classes: int) -> Float[np.ndarray, "C D"]:
    """The mean of every class; zeros for one without samples."""
    y = torch.as_tensor(label)
    total = class_sums(z, y, classes, torch.float64)
    return (total / y.bincount(minlength=classes).clamp_min(1)[:, None]).numpy()


def link_means(mean: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "m 4"]:
    """Merges by average linkage of the distances between means, similar ones side by side."""
    away = pdist(mean)
    return optimal_leaf_ordering(linkage(away, "average"), away)


def leaves(mean: Float[np.ndarray, "M D"]) -> Int[np.ndarray, "M"]:
    """An order of classes in which similar ones are neighbours."""
    return np.arange(len(mean)) if len(mean) < 3 else leaves_list(link_means(mean)).astype(np.int64)


def group_classes(
    class_name: Sequence[str], above: Mapping[str, Sequence[str]] | None, word: str = "level"
) -> tuple[Grouping, ...]:
    """A grouping for each level of a tree, the coarsest first; levels that tell no classes apart, or all of them, are left out.

    Args:
        above: the ancestors of every class, coarsest first; a class may be missing, or its path end early.
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
