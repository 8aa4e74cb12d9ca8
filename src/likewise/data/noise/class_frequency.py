from __future__ import annotations

import math
from typing import Literal

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import Share, ShareAboveZero
from likewise.core.contracts import NoiseModel
from likewise.core.errors import LikewiseError
from likewise.data.noise._selection import choose, number_classes


class ClassFrequency(NoiseModel):
    """Wrong labels among the most frequent, or the rarest, classes; only the size of a class matters.

    Paper: after the large and small class noise of Dereka et al., Deep Image Retrieval Is Not Robust to Label
        Noise, CVPR workshops 2022. Not a reproduction: we could not read its definition.
    Formula: P(new = c) = 1 / |G - {y}| for c in G - {y}, G the largest (or smallest) ceil(group * C) classes
    Differs: the paper may restrict the samples that get a wrong label, the wrong labels, or both; `restrict` selects it. `share`
        is always a share of all samples. Classes of equal size are ordered by their numbers.

    Args:
        share: share of the labels that become wrong, in [0, 1].
        group: share of the classes that form the group G.
        side: whether G holds the largest or the smallest classes.
        restrict: "target": any label may become wrong; the new label is in G. "source": labels in G become wrong; the new label
            is any other class. "both": labels in G become other labels in G.
        exact: whether `share` is the exact share or the expected share.
    """

    def __init__(
        self,
        share: Share = 0.3,
        group: ShareAboveZero = 0.5,
        side: Literal["large", "small"] = "large",
        restrict: Literal["target", "source", "both"] = "target",
        exact: bool = True,
    ):
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
                f"ClassFrequency: the group must have at least two classes, but group={self.group} of {len(classes)} classes is "
                "one class; raise group"
            )
        pool = np.arange(len(y)) if self.restrict == "target" else np.flatnonzero(np.isin(place, group))
        if self.share * len(y) > len(pool):
            raise LikewiseError(
                f"ClassFrequency: share={self.share} is {round(self.share * len(y))} samples, but the group has {len(pool)}; "
                "lower share or raise group"
            )
        rows = pool[choose(len(pool), self.share * len(y) / len(pool), self.exact, rng)]
        among = np.full(len(classes), -1)  # position of a class among the targets
        among[targets] = np.arange(len(targets))
        own = among[place[rows]]
        drawn = rng.integers(0, len(targets) - (own >= 0))
        noisy = y.copy()
        noisy[rows] = classes[targets[drawn + ((own >= 0) & (drawn >= own))]]  # skips the class of the sample
        return noisy
