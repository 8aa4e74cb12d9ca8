from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss
from likewise.core.similarity import neg_squared, weighted_mean
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows

MIN_DISTANCE = 1e-4
"""Added to squared distances before the logarithm, whose slope at 0 is infinite."""


class LogRatio(Loss):
    """Makes ratios of distances equal to ratios of irrelevance: twice as irrelevant is twice as far.

    Paper: Kim et al., Deep Metric Learning Beyond Binary Supervision, CVPR 2019.
    Formula: l_a = mean over i != j of ( log(D_ai / D_aj) - log(L_ai / L_aj) )^2, D the squared distance of raw embeddings,
        L_ai = 1 - r_ai + least the irrelevance of i to a
    Differs: i and j are all known pairs of the batch, where the paper takes the nearest neighbours of an anchor and some random
        samples. The mean over all triplets of an anchor is twice the variance of log(D_ai / L_ai), so no triplet is formed. 1e-4
        is added to D. The mean is over the anchors with two known pairs.
    Graded: r is the relevance of the pair; the threshold is not used. With single labels, r is 1 for the same class, else 0.

    Args:
        least: irrelevance of a pair of relevance 1. Ours: 0.1, so with single labels negatives should be eleven times as far.
    """

    input = "raw"
    relevance_inputs = ("pairs",)
    graded = True

    def __init__(self, least: Positive = 0.1):
        super().__init__()
        self.least = least

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(self._rows, z, y, ref, similarity=neg_squared, relevance=self.relevance)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        known = (pairs.pos | pairs.neg).to(sim)
        r = (pairs.pos if pairs.value is None else pairs.value).to(sim)
        ratio = (MIN_DISTANCE - sim).log() - (1 - r + self.least).log()
        apart = ratio - weighted_mean(ratio, known)[:, None]
        count = known.sum(1)
        has = count > 1
        return (2 * (known * apart.square()).sum(1) / (count - 1).clamp_min(1)).where(has, 0.0), has
