from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import Share
from likewise.core.contracts import NoiseModel
from likewise.core.errors import LikewiseError
from likewise.data.noise._selection import choose, first_of, several_labels_error


class DropLabels(NoiseModel):
    """A share of the labels is missing, for samples with several labels; every sample keeps at least one.

    Paper: missing labels as in Durand et al., Learning a Deep ConvNet for Multi-label Classification with Partial Labels, CVPR
        2019.
    Formula: P(label is missing) = share, for all labels but one random label of each sample
    Differs: the paper marks labels as not known; here the sample looks as if it did not have them. By default exactly
        round(share * labels) labels are dropped.

    Args:
        share: share of all labels of the samples that are dropped, in [0, 1].
        exact: whether `share` is the exact share or the expected share.
    """

    def __init__(self, share: Share = 0.3, exact: bool = True):
        self.share = share
        self.exact = exact

    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        raise several_labels_error("DropLabels")

    def change_labels(
        self, sample: Int[np.ndarray, "P"], label: Int[np.ndarray, "P"], rng: np.random.Generator
    ) -> tuple:
        order = rng.permutation(len(sample))
        loose = order[~first_of(sample[order])]  # the first label of each sample in this order stays
        if self.share * len(sample) > len(loose):
            raise LikewiseError(
                f"DropLabels: share={self.share} is {round(self.share * len(sample))} labels, but only {len(loose)} of "
                f"{len(sample)} can be dropped, because every sample keeps one; lower share"
            )
        kept = np.ones(len(sample), bool)
        if len(loose):
            kept[loose[choose(len(loose), self.share * len(sample) / len(loose), self.exact, rng)]] = False
        return sample[kept], label[kept]
