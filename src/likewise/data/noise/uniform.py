from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import Share
from likewise.core.contracts import NoiseModel
from likewise.data.noise._selection import choose, choose_absent, draw_absent, number_classes


class Uniform(NoiseModel):
    """A share of the samples gets the label of another class; all other classes have equal probability.

    If samples have several labels, a share of all these labels becomes another label, which the sample does not have.

    Paper: the symmetric noise of Barbany et al., ProcSim, WACV 2024, and of most work on wrong labels.
    Formula: P(new = c) = share / (C - 1) for every c that is not the true class
    Differs: by default exactly round(share * N) labels change; `exact=False` changes each with probability `share`, as in the
        lists published with PRISM (Liu et al., CVPR 2021).

    Args:
        share: share of the labels that become wrong, in [0, 1].
        exact: whether `share` is the exact share or the expected share.
    """

    def __init__(self, share: Share = 0.3, exact: bool = True):
        self.share = share
        self.exact = exact

    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        classes, place = number_classes("Uniform", y, self.share)
        rows = choose(len(y), self.share, self.exact, rng)
        shifted = (place[rows] + rng.integers(1, max(len(classes), 2), len(rows))) % len(classes)  # never a shift by 0
        noisy = y.copy()
        noisy[rows] = classes[shifted]
        return noisy

    def change_labels(
        self, sample: Int[np.ndarray, "P"], label: Int[np.ndarray, "P"], rng: np.random.Generator
    ) -> tuple:
        places = choose_absent("Uniform", sample, label, self.share, self.exact, rng)
        noisy = label.copy()
        noisy[places] = draw_absent(sample[places], (sample, label), np.unique(label), rng)
        return sample, noisy
