from __future__ import annotations

import math
from typing import Literal

import numpy as np
from jaxtyping import Int

from likewise.contracts import NoiseModel
from likewise.errors import LikewiseError
from likewise.noise._selection import check_share, choose, number_classes


class ClassFrequency(NoiseModel):
    """Labels go wrong among the most frequent classes, or among the rarest; which class it is counts for nothing else.

    Paper: in the spirit of the large and small class noise of Dereka et al., Deep Image Retrieval Is Not Robust to Label
        Noise, CVPR workshops 2022. Not a reproduction: its definition was not at hand.
    Formula: P(new = c) = 1 / |G - {y}| for c in G - {y}, G the largest (or smallest) ceil(group * C) classes
    Differs: the paper may restrict whom it spoils, what they become, or both; `restrict` says which. `share` is always that
        of all samples. Classes of one size count in the order of their numbers.

    Args:
        share: how many labels become wrong, in [0, 1].
        group: share of the classes that are the largest (the smallest).
        side: which of them.
        restrict: "target": anybody's label may go wrong, and becomes one of the group's. "source": labels of the group go
            wrong, and become any other. "both": labels of the group become others of the group.
        exact: whether `share` is the exact share or the expected one.
    """

    def __init__(
        self,
        share: float = 0.3,
        group: float = 0.5,
        side: Literal["large", "small"] = "large",
        restrict: Literal["target", "source", "both"] = "target",
        exact: bool = True,
    ):
        check_share("ClassFrequency", share)
        if not 0 < group <= 1:
            raise LikewiseError(f"ClassFrequency: group must be above 0 and at most 1, got {group}")
        self.share = share
        self.group = group
        self.side = side
        self.restrict = restrict
        self.exact = exact

    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        if not self.share:
            return y.copy()
        classes, place = number_classes("ClassFrequency", y, self.share)
        size = np.bincount(place)
        order = np.argsort(-size if self.side == "large" else size, kind="stable")
        group = order[: math.ceil(self.group * len(classes) - 1e-9)]
        targets = np.arange(len(classes)) if self.restrict == "source" else group
        if len(targets) < 2:
            raise LikewiseError(
                f"ClassFrequency: group={self.group} of {len(classes)} classes is one class, whose samples would have no other "
                "label to get; raise group"
            )
        pool = np.arange(len(y)) if self.restrict == "target" else np.flatnonzero(np.isin(place, group))
        if self.share * len(y) > len(pool):
            raise LikewiseError(
                f"ClassFrequency: share={self.share} is {round(self.share * len(y))} samples, but the group has {len(pool)}; "
                "lower share or raise group"
            )
        rows = pool[choose(len(pool), self.share * len(y) / len(pool), self.exact, rng)]
        among = np.full(len(classes), -1)  # a class's place among the targets
        among[targets] = np.arange(len(targets))
        own = among[place[rows]]
        drawn = rng.integers(0, len(targets) - (own >= 0))
        noisy = y.copy()
        noisy[rows] = classes[targets[drawn + ((own >= 0) & (drawn >= own))]]  # the own class is stepped over
        return noisy
