from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import Share
from likewise.core.contracts import NoiseModel
from likewise.data.noise._selection import choose_absent, draw_absent, several_labels_error


class AddLabels(NoiseModel):
    """Superfluous labels, for samples with several labels: random samples get labels that they do not have.

    Paper: superfluous labels as in Xie and Huang, Partial Multi-Label Learning, AAAI 2018.
    Formula: share * P pairs (sample, label) are added to the P pairs of the data; a random label of a sample gets a companion,
        drawn with equal probability from the labels that its sample does not have
    Differs: the paper adds a fixed number of labels to every sample; here a sample with many labels gets more of them.

    Args:
        share: number of added labels, as a share of all labels of the samples, in [0, 1].
        exact: whether `share` is the exact share or the expected share.
    """

    def __init__(self, share: Share = 0.3, exact: bool = True):
        self.share = share
        self.exact = exact

    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        raise several_labels_error("AddLabels")

    def change_labels(
        self, sample: Int[np.ndarray, "P"], label: Int[np.ndarray, "P"], rng: np.random.Generator
    ) -> tuple:
        places = choose_absent("AddLabels", sample, label, self.share, self.exact, rng)
        added = draw_absent(sample[places], (sample, label), np.unique(label), rng)
        return np.concatenate([sample, sample[places]]), np.concatenate([label, added])
