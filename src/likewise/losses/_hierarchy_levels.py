"""Levels of groups above the classes of a loss: how many there are, who belongs where, and a loss for each."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.contracts import Loss
from likewise.errors import LikewiseError
from likewise.taxonomies import ancestors

Plan = tuple[int, int] | Int[Tensor, "K"]
"""Of a level: how many there are below it and how many groups, or the group of each of those below."""


class Level(NamedTuple):
    """A level of groups: how many there are, what it weighs, and a loss without proxies, which are with_proxies to it."""

    size: int
    weight: float
    loss: Loss
    name: str  # of what it calls its proxies
    copies: int  # of every proxy that it wants

    def with_proxies(
        self, proxies: Float[Tensor, "K D"], z: Float[Tensor, "B D"], group: Int[Tensor, "B"]
    ) -> Float[Tensor, "B"]:
        """What the loss says with these proxies. The batch was checked already."""
        try:
            self.loss.__dict__[self.name] = proxies if self.copies == 1 else proxies.repeat(self.copies, 1)  # pyright: ignore[reportIndexIssue]
            return self.loss.forward(z, group)
        finally:
            self.loss.__dict__[self.name] = None  # pyright: ignore[reportIndexIssue]


def plan_sizes(classes: int, coarse: int | tuple[int, ...] | None, levels: int) -> list[Plan]:
    """Levels of so many groups, where they are yet to be found: as `coarse` says, or each a tenth of the one below."""
    if classes < 3:
        raise LikewiseError(f"Hierarchical: groups of classes need three classes or more, got {classes}")
    first = max(2, classes // 10) if coarse is None else coarse
    sizes = [classes, *first] if isinstance(first, tuple) else [classes, first]
    if levels < 1 or (isinstance(first, tuple) and levels not in (1, len(first))):
        raise LikewiseError(
            f"Hierarchical: levels must be 1 or more, and as many as coarse has numbers, got levels={levels} and "
            f"coarse={coarse}; leave levels out"
        )
    while len(sizes) <= levels and not isinstance(first, tuple):
        sizes.append(max(2, sizes[-1] // 10))
    if len(sizes) == 1 or any(not 2 <= few < many for many, few in pairwise(sizes)):
        raise LikewiseError(
            f"Hierarchical: groups must be 2 or more and fewer on every level than below it, got {sizes[1:]} of {classes} "
            f"classes; {'take fewer levels' if coarse is None else 'change coarse'}"
        )
    return list(pairwise(sizes))


def plan_by_tree(
    classes: int, depth: int | tuple[int, ...], names: Sequence[str] | None, tree: str | None,
    taxonomy: dict[str, tuple[str, ...]] | None,
) -> list[Plan]:  # fmt: skip
    """Levels of the groups that a tree has at these depths."""
    depths = depth if isinstance(depth, tuple) else (depth,)
    if not depths or depths[-1] < 1 or any(a <= b for a, b in pairwise(depths)):
        raise LikewiseError(f"Hierarchical: depth must be 1 or more, several depths the deepest first, got {depth}")
    if names is None:  # somebody only looks at what kind of loss this is
        return [(classes, 2) for _ in depths]
    if len(names) != classes:
        raise LikewiseError(
            f"Hierarchical: class_names must name each of the {classes} classes, got {len(names)} names"
        )
    below, found = ancestors("Hierarchical", names, tree, taxonomy), []
    for cut in depths:
        nodes = sorted({path[:cut] for path in below})
        if not 2 <= len(nodes) < len(below):
            raise LikewiseError(
                f"Hierarchical: groups must be 2 or more and fewer on every level than below it, got {len(nodes)} at "
                f"depth={cut} of the tree for {len(below)} below; choose another depth"
            )
        number = {node: place for place, node in enumerate(nodes)}
        found.append(torch.tensor([number[path[:cut]] for path in below]))
        below = nodes
    return found


def level_weights(weight: float | tuple[float, ...], levels: int) -> list[float]:
    """The weight of every level."""
    each: list[float] = list(weight) if isinstance(weight, tuple) else [weight] * levels
    if len(each) != levels or not all(0 <= one < float("inf") for one in each):
        raise LikewiseError(
            f"Hierarchical: weight must be one number of 0 or more, or one for each of the {levels} levels, got {weight}"
        )
    return each


def class_vectors(loss: Loss) -> nn.Parameter:
    """The vectors of a loss's classes, all first ones, then all second ones; raise if they are not all it has."""
    own, classes, dim = list(loss.parameters()), getattr(loss, "classes", None), getattr(loss, "dim", None)
    sound = (
        classes and dim and len(own) == 1 and own[0].ndim == 2 and own[0].shape[1] == dim and not len(own[0]) % classes
    )
    if not sound or list(loss.buffers()) or loss.input != "unit":
        raise LikewiseError(
            "Hierarchical: loss must have vectors of classes and learn nothing else, such as ProxyAnchor() or ProxyNCA(), got "
            f"{type(loss).__name__}"
        )
    return own[0]


def copy_of_loss(loss: Loss, **other) -> Loss:
    """A loss of the same kind and settings, but for these arguments."""
    names = inspect.signature(type(loss)).parameters
    return type(loss)(**{name: getattr(loss, name) for name in names} | other)
