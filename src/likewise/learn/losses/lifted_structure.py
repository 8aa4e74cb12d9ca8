from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss
from likewise.core.similarity import (
    EMPTY_SUM_THRESHOLD,
    MIN_SQUARED_DISTANCE,
    at_least_float32,
    exact_softplus,
    full_precision,
    is_traced,
    log_sum_and_powers,
    log_sum_exp,
    log_weights,
    neg_squared,
    normalise_by_count,
    positive_negative_masks,
    raw_distance,
)  # fmt: skip
from likewise.core.types import Pairs, Ref


class LiftedStructure(Loss):
    """Pulls a positive pair together until it is nearer than the negatives of both samples.

    Paper: Oh Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
    Formula: l_ij = 1/2 [d_ij + log(sum_n e^(margin - d_in) + sum_n e^(margin - d_jn))]+^2 for a positive pair i, j, with n over
        the negatives of i and of j; L is the mean over such pairs
    Differs: on raw embeddings and plain (not squared) distances, as in the paper, with no bound on their length. A pair counts
        for both of its samples, and the value of a sample is the scaled sum over its own pairs. With a reference, j and n are
        reference rows, and the negatives of j are samples of the batch; a batch as its own reference has the same values. A
        pair without negatives has the value 0.
    Graded: a positive pair of relevance r has the weight r in the mean, and e^(margin - d) of a negative the weight 1 - r; the
        threshold of the relevance separates the two.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: negatives nearer than this dominate the loss. Paper: 1.
    """

    input = "raw"
    relevance_inputs = ("pairs",)
    graded = True

    def __init__(self, margin: NotNegative = 1.0):
        super().__init__()
        self.margin = margin

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        pairs = positive_negative_masks(y, ref, relevance=self.relevance)
        with full_precision(z):
            z = at_least_float32(z)
            if pairs.value is not None:
                r = pairs.value.to(z).masked_fill(~pairs.pos, 0)
                each = _lifted(z, ref, pairs, self.margin, r)
                return each * (len(z) / r.sum().clamp_min(torch.finfo(z.dtype).tiny))
            short = ref is None and z.device.type == "cpu" and not is_traced()
            each = _Lifted.apply(z, pairs, self.margin) if short else _lifted(z, ref, pairs, self.margin)
            return normalise_by_count(each, pairs.pos.sum(1))


def _lifted(z: Tensor, ref: Ref | None, pairs: Pairs, margin: float, weight: Tensor | None = None) -> Tensor:
    """Return the sum over the positive pairs of every sample.

    Args:
        weight: weight of every positive pair; None: 1.
    """
    d = raw_distance(neg_squared(z, z if ref is None else at_least_float32(ref.z)))
    away = d if pairs.value is None else d - log_weights(pairs.value.to(d))[1]  # the weight of a negative
    row = log_sum_exp(away, pairs.neg, -1.0) + margin
    column = row if ref is None else log_sum_exp(away.T, pairs.neg.T, -1.0) + margin
    negatives = exact_softplus(row[:, None] - column) + column  # log(e^row + e^column)
    if ref is not None:  # j may have no negatives although i has some
        negatives = negatives.where(column > EMPTY_SUM_THRESHOLD, row[:, None])
    hinge = (d + negatives).masked_fill(~pairs.pos, 0).relu().square()
    return (hinge if weight is None else hinge * weight).sum(1) / 2


class _Lifted(torch.autograd.Function):
    """`_lifted` without a reference, with its own gradient; reads memory half as often."""

    @staticmethod
    def forward(ctx, z: Tensor, pairs: Pairs, margin: float) -> Tensor:
        d = raw_distance(neg_squared(z, z))
        row, power = log_sum_and_powers(d, pairs.neg, -1.0, one=False)
        row += margin
        beyond = row[:, None] - row
        hinge = exact_softplus(beyond).add_(row).add_(d).relu_().mul_(pairs.pos.to(d))
        ctx.save_for_backward(z, d, power, hinge, beyond.sigmoid_())
        ctx.pairs, ctx.margin = pairs, margin
        return torch.linalg.vector_norm(hinge, dim=1).square_().div_(2)

    @staticmethod
    def backward(ctx, grad: Tensor):
        z, d, power, hinge, of_row = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivative needed: record the backward pass
            again = _lifted(z, None, ctx.pairs, ctx.margin)
            return torch.autograd.grad(again, z, grad, create_graph=True)[0], None, None
        by_d = hinge * grad[:, None]
        rowwise = by_d * of_row
        by_row = rowwise.sum(1) + by_d.sum(0) - rowwise.sum(0)
        by_d.addcmul_(power, (by_row / power.sum(1).clamp_min_(0.5))[:, None], value=-1).div_(d)
        by_d.mul_((d - MIN_SQUARED_DISTANCE**0.5).sign_())  # 0 where two samples coincide
        both = by_d.sum(1) + by_d.sum(0)
        return (by_d @ z).add_(by_d.T @ z).neg_().addcmul_(both[:, None], z), None, None
