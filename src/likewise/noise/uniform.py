from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.contracts import NoiseModel
from likewise.types import LikewiseError


class Uniform(NoiseModel):
    """A share of the samples gets the label of another class, any of them with the same chance.

    Paper: the symmetric noise of Barbany et al., ProcSim, WACV 2024, and of most work on wrong labels.
    Formula: P(new = c) = share / (C - 1) for every c that is not the true class
    Differs: by default exactly round(share * N) labels change; `exact=False` flips each with probability `share`.

    Args:
        share: how many labels become wrong, in [0, 1].
        exact: whether that is the exact share or the expected one.
    """

    def __init__(self, share: float = 0.3, exact: bool = True):
        if not 0 <= share <= 1:
            raise LikewiseError(f"Uniform: share must be between 0 and 1, got {share}")
        self.share = share
        self.exact = exact

    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        classes, number = np.unique(y, return_inverse=True)
        if self.share and len(classes) < 2:
            raise LikewiseError(f"Uniform: wrong labels need at least two classes, got {len(classes)}")
        if self.exact:
            rows = rng.permutation(len(y))[: round(self.share * len(y))]
        else:
            rows = np.flatnonzero(rng.random(len(y)) < self.share)
        shifted = (number[rows] + rng.integers(1, max(len(classes), 2), len(rows))) % len(classes)  # never a shift by 0
        noisy = y.copy()
        noisy[rows] = classes[shifted]
        return noisy
