"""Levels of groups above the classes of a `Hierarchical` loss: their sizes, members, weights and losses."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.contracts import Loss
from likewise.core.errors import LikewiseError
from likewise.data.taxonomies import ancestors

Plan = tuple[int, int] | Int[Tensor, "K"]
"""Plan of a level: (number of classes or groups below it, number of groups), or the group of every class or group below."""


class Level(NamedTuple):
    """A level of groups, with a loss that has no proxies of its own."""

    size: int  # number of groups
    weight: float  # factor of the level in the loss
    loss: Loss
    name: str  # attribute of the loss that holds its proxies
    copies: int  # vectors per group that the loss needs

    def with_proxies(
        self, proxies: Float[Tensor, "K D"], z: Float[Tensor, "B D"], group: Int[Tensor, "B"]
    ) -> Float[Tensor, "B"]:
        """Return the values of the loss with these proxies, which are set for this call only. Does not check the batch."""
        try:
            self.loss.__dict__[self.name] = proxies if self.copies == 1 else proxies.repeat(self.copies, 1)  # pyright: ignore[reportIndexIssue]
            return self.loss.forward(z, group)
        finally:
            self.loss.__dict__[self.name] = None  # pyright: ignore[reportIndexIssue]


def plan_sizes(classes: int, coarse: int | tuple[int, ...] | None, levels: int) -> list[Plan]:
    """Return the plans of levels whose groups will be found by clustering.

    Args:
        coarse: number of groups of each level; None: a tenth of the level below, 2 at least.
        levels: number of levels.
    """
    if classes < 3:
        raise LikewiseError(f"Hierarchical: there must be three classes or more to form groups, got {classes}")
    first = max(2, classes // 10) if coarse is None else coarse
    sizes = [classes, *first] if isinstance(first, tuple) else [classes, first]
    if levels < 1 or (isinstance(first, tuple) and levels not in (1, len(first))):
        raise LikewiseError(
            f"Hierarchical: levels must be 1 or more, and equal to the length of coarse, got levels={levels} and "
            f"coarse={coarse}; omit levels"
        )
    while len(sizes) <= levels and not isinstance(first, tuple):
        sizes.append(max(2, sizes[-1] // 10))
    if len(sizes) == 1 or any(not 2 <= few < many for many, few in pairwise(sizes)):
        raise LikewiseError(
            f"Hierarchical: every level must have 2 groups or more, and fewer than the level below, got {sizes[1:]} of {classes} "
            f"classes; {'use fewer levels' if coarse is None else 'change coarse'}"
        )
    return list(pairwise(sizes))


def plan_by_tree(
    classes: int, depth: int | tuple[int, ...], names: Sequence[str] | None, tree: str | None,
    taxonomy: dict[str, tuple[str, ...]] | None,
) -> list[Plan]:  # fmt: skip
    """Return the plans of levels whose groups are the nodes of a tree at these depths.

    Args:
        depth: 1 for the coarsest nodes; several depths, the deepest first, for several levels.
        names: names of the classes; None: unknown, the plans are placeholders.
        tree: tree in place of the data's own taxonomy; None: `taxonomy`.
    """
    depths = depth if isinstance(depth, tuple) else (depth,)
    if not depths or depths[-1] < 1 or any(a <= b for a, b in pairwise(depths)):
        raise LikewiseError(
            f"Hierarchical: depth must be 1 or more, with the deepest first if there are several, got {depth}"
        )
    if names is None:  # the loss is built only to read its attributes
        return [(classes, 2) for _ in depths]
    if len(names) != classes:
        raise LikewiseError(
            f"Hierarchical: class_names must name each of the {classes} classes, got {len(names)} names"
        )
    below, plans = ancestors("Hierarchical", names, tree, taxonomy), []
    if depths[0] > (deepest := max(map(len, below))):
        raise LikewiseError(
            f"Hierarchical: depth must be at most {deepest}, the levels of this tree above the classes, got {depth}; choose a "
            "smaller depth, or a tree with more levels"
        )
    for level in depths:
        nodes = sorted({path[:level] for path in below})
        if not 2 <= len(nodes) < len(below):
            raise LikewiseError(
                f"Hierarchical: every level must have 2 groups or more, and fewer than the level below, got {len(nodes)} at "
                f"depth={level} of the tree for {len(below)} below; choose another depth"
            )
        number = {node: position for position, node in enumerate(nodes)}
        plans.append(torch.tensor([number[path[:level]] for path in below]))
        below = nodes
    return plans


def level_weights(weight: float | tuple[float, ...], levels: int) -> list[float]:
    """Return the weight of every level, given one for all or one for each."""
    each: list[float] = list(weight) if isinstance(weight, tuple) else [weight] * levels
    if len(each) != levels or not all(0 <= one < float("inf") for one in each):
        raise LikewiseError(
            f"Hierarchical: weight must be one number of 0 or more, or one for each of the {levels} levels, got {weight}"
        )
    return each


def class_vectors(loss: Loss) -> nn.Parameter:
    """Return the class vectors of a loss: the first of every class, then the second, ... Raise if it has other state."""
    own, classes, dim = list(loss.parameters()), getattr(loss, "classes", None), getattr(loss, "dim", None)
    valid = (
        classes and dim and len(own) == 1 and own[0].ndim == 2 and own[0].shape[1] == dim and not len(own[0]) % classes
    )
    if not valid or list(loss.buffers()) or loss.input != "unit":
        raise LikewiseError(
            f"Hierarchical: loss must have class vectors as its only parameters, got {type(loss).__name__}; use ProxyAnchor() or "
            "ProxyNCA()"
        )
    return own[0]


def copy_of_loss(loss: Loss, **other) -> Loss:
    """Return a loss of the same class and arguments, except for those given."""
    names = inspect.signature(type(loss)).parameters
    return type(loss)(**{name: getattr(loss, name) for name in names} | other)
