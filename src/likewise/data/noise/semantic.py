from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from likewise.core.argument_checks import Share
from likewise.core.contracts import NoiseModel
from likewise.core.errors import LikewiseError
from likewise.data.noise._selection import choose, number_classes
from likewise.data.taxonomies import ancestors, require_tree


class Semantic(NoiseModel):
    """A share of the samples gets the label of a related class in the class tree, as when people confuse two gulls.

    The class tree is restricted to the classes of the data. For each sample, node(y) is the first node above its class with
    several children; its wrong label is one of the other classes below that node.

    Paper: Barbany et al., ProcSim: Proxy-based Confidence for Robust Similarity Learning, WACV 2024.
    Formula: P(new = c) = share / (|leaves(node)| - 1) for c below node(y), c not y
    Differs: "all children" in the paper may mean the classes below the node ("leaf"), or its child nodes, of which one is drawn
        and then a class below it ("child"). By default exactly round(share * N) labels change. The authors' trees are not
        published: in `cub200` missing names are placed by hand, and `cars196-type` groups by body type,
        with vans and pickups, which WordNet does not place below car, as two of the types.

    Args:
        share: share of the labels that become wrong, in [0, 1].
        exact: whether `share` is the exact share or the expected share.
        reading: what has equal probability: "leaf": the classes below the node; "child": the children of the node.
        tree: replaces the class tree of the data: a shipped tree (cub200, cars196-type, cars196-deep), a .json or .csv file with
            the ancestors of every class, or wordnet:ROOT.
        class_names: names of the classes by number; the data fills them in.
        taxonomy: ancestors by class name, coarsest first; the data fills them in.
    """

    def __init__(
        self,
        share: Share = 0.3,
        exact: bool = True,
        reading: Literal["leaf", "child"] = "leaf",
        tree: str | None = None,
        class_names: Sequence[str] | None = None,
        taxonomy: dict[str, tuple[str, ...]] | None = None,
    ):
        if class_names is None:
            raise LikewiseError(
                "Semantic: it must know the class names to look up classes in the tree, got None; pass class_names"
            )
        require_tree("Semantic", tree, taxonomy)
        self.share = share
        self.exact = exact
        self.reading = reading
        self.tree = tree
        self.class_names = class_names
        self.taxonomy = taxonomy

    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        if not self.share:
            return y.copy()
        classes, place = number_classes("Semantic", y, self.share)
        relatives = Relatives(self._paths(classes))
        rows = choose(len(y), self.share, self.exact, rng)
        rows = rows[np.argsort(place[rows], kind="stable")]
        noisy = y.copy()
        for own in np.split(rows, np.flatnonzero(np.diff(place[rows])) + 1) if len(rows) else ():
            others, chance = relatives.of(int(place[own[0]]), self.reading)
            noisy[own] = classes[rng.choice(others, len(own), p=chance)]
        return noisy

    def _paths(self, classes: Int[np.ndarray, "C"]) -> list[tuple[str, ...]]:
        """Return the ancestors of each class, coarsest first."""
        names = [self.class_names[int(number)] for number in classes]
        return ancestors("Semantic", names, self.tree, self.taxonomy)


class Relatives:
    """Related classes in a class tree. A node is its path from the root; a class is a leaf below its path."""

    def __init__(self, paths: list[tuple[str, ...]]):
        self.paths = paths
        self.below: dict[tuple[str, ...], list[int]] = defaultdict(list)  # node -> its classes
        for number, path in enumerate(paths):
            for depth in range(len(path) + 1):
                self.below[path[:depth]].append(number)

    def of(self, number: int, reading: str) -> tuple[Int[np.ndarray, "n"], Float[np.ndarray, "n"]]:
        """Return the other classes below the first node with several children, and the probability of each."""
        path = self.paths[number]
        # The first node upwards that has another class below it has several children: with one child, that child would have it.
        depth = next(d for d in range(len(path), -1, -1) if len(self.below[path[:d]]) > 1)
        others = np.array([one for one in self.below[path[:depth]] if one != number])
        if reading == "leaf":
            return others, np.full(len(others), 1 / len(others))
        # The child above the sample's class has no other class below it, else depth would be larger. A class directly at the
        # node is a child as well.
        child = [self.paths[one][depth : depth + 1] or one for one in others.tolist()]
        size = Counter(child)
        return others, np.array([1 / (len(size) * size[one]) for one in child])
