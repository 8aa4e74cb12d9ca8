from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss
from likewise.losses.n_pair import exact_softplus
from likewise.similarity import NEAREST, NOBODY, at_least_float32, full_precision, log_sum_exp, mates, spread
from likewise.types import LikewiseError, Ref


class LiftedStructure(Loss):
    """Pull two class mates together until they are nearer than the strangers of both of them.

    Paper: Oh Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
    Formula: l_ij = 1/2 [d_ij + log(sum_n e^(margin - d_in) + sum_n e^(margin - d_jn))]+^2 for class mates i and j, n running over
        the strangers of the one and of the other; L is the mean over such pairs
    Differs: on raw embeddings and plain (not squared) distances, as in the paper, with no bound on their length. A pair counts
        once from each end, and a sample's number is the sum over its own pairs, scaled. Compared with a reference, j and n are of
        the reference for the anchor i, and the strangers of j are those in the batch; a batch as its own reference gives the
        same numbers. Where i and j have no strangers the pair asks for nothing.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: how near strangers may come before they count for much. Paper: 1.
    """

    input = "raw"

    def __init__(self, margin: float = 1.0):
        super().__init__()
        if margin < 0:
            raise LikewiseError(f"LiftedStructure: margin must be 0 or more, got {margin}")
        self.margin = margin

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        own = ref or Ref(z, y, torch.arange(len(y), device=y.device))
        pairs = mates(y, own.y, own.own, own.used)
        with full_precision(z):
            d = _distances(at_least_float32(z), at_least_float32(own.z))
            row = log_sum_exp(d, pairs.neg, -1.0) + self.margin
            column = row if ref is None else log_sum_exp(d.T, pairs.neg.T, -1.0) + self.margin
            strangers = exact_softplus(row[:, None] - column) + column  # log(e^row + e^column)
            if ref is not None:  # j may be without strangers where i has some
                strangers = strangers.where(column > NOBODY, row[:, None])
            each = (d + strangers).masked_fill(~pairs.pos, 0).relu().square().sum(1) / 2
            return spread(each, pairs.pos.sum(1))


def _distances(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Euclidean distances with a finite slope at 0, in as few passes over the matrix as there can be."""
    squared = torch.addmm(b.square().sum(1), a, b.T, alpha=-2).add_(a.square().sum(1, keepdim=True))
    return squared.clamp_min(NEAREST).sqrt()
