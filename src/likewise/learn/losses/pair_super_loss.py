from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative, PositiveOrInfinite
from likewise.core.contracts import Loss
from likewise.core.similarity import compare, is_traced
from likewise.core.types import Ref
from likewise.learn.lambert_w import exp_minus_w
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName, check_margins


class PairSuperLoss(Loss):
    """Contrastive loss with a weight per pair that falls with its loss: pairs of large loss are probably wrong.

    Paper: Castells et al., SuperLoss: A Generic Loss for Robust Curriculum Learning, NeurIPS 2020;
        as reproduced by Barbany et al., ProcSim, WACV 2024.
    Formula: L = mean over positives of w_ij l_ij + mean over negatives of w_ij l_ij, over pairs with l_ij > 0;
        l_ij = [d_ij - pull_margin]+ or [margin - d_ij]+; w_ij = e^-W(max(-2/e, (l_ij - t) / lam) / 2), a constant,
        t the mean of l_ij over all pairs of all earlier steps, one for positives and one for negatives
    Differs: the paper's lam log^2 w has no gradient and is left out, and -t w with it. The mean of t includes pairs of loss 0,
        the outer means do not: ProcSim averages all pair losses, and weights the terms of PML's contrastive loss before PML
        reduces them. In the first step t is the mean of the batch itself. The value of an anchor is the contribution of its
        pairs to the two means.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        lam: regularisation of the weights; for large values all weights are 1. Paper, in classification: 1 or 0.25.
        margin: negatives nearer than this are pushed away. ProcSim: 1.
        pull_margin: positives nearer than this are not pulled. ProcSim: 0.
        space: space of the distances. Hyperbolic distances are 0 to 4, and 2.7 corresponds to a Euclidean 1; "hyperbolic" changes
            the strength of pull and push, not the order of neighbours, so miners and evaluation use the cosine. See
            `likewise.losses._hyperbolic`.
    """

    mean: Tensor
    count: Tensor
    relevance_inputs = ("pairs",)

    def __init__(
        self, lam: PositiveOrInfinite = 1.0, margin: float = 1.0, pull_margin: NotNegative = 0.0,
        space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        check_margins("PairSuperLoss", pull_margin, margin, SPACES_BY_NAME[space].furthest)
        self.lam = lam
        self.margin = margin
        self.pull_margin = pull_margin
        self.space = space
        self.pending: tuple[Tensor, Tensor] | None = None  # means and counts of this step, for `after_step`
        self.register_buffer("mean", torch.zeros(2))  # of positives, of negatives
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        sim, pairs = compare(z, y, ref, relevance=self.relevance)
        d = SPACES_BY_NAME[self.space].distance(sim)
        each = torch.where(pairs.pos, d - self.pull_margin, self.margin - d).relu() * (pairs.pos | pairs.neg)
        still = each.detach()
        kinds = (pairs.pos, pairs.neg)
        count = torch.stack([kind.sum() for kind in kinds])
        active = torch.stack([((still > 0) & kind).sum() for kind in kinds])
        mean = torch.stack([(still * kind).sum() for kind in kinds]) / count.clamp_min(1)
        if self.training and (torch.compiler.is_compiling() or not is_traced()):
            self.pending = mean, count
        usual = torch.where(self.count > 0, self.mean.to(mean), mean)
        usual, share = (torch.where(pairs.pos, *of_kind) for of_kind in (usual, len(y) / active.clamp_min(1)))
        w = exp_minus_w(((still - usual) / self.lam).clamp_min(-2 / math.e) / 2)
        return (w * share * each).sum(1)

    def after_step(self, step: int) -> None:
        if self.pending is not None:
            mean, count = self.pending
            self.count += count
            self.mean.lerp_(mean.to(self.mean), (count / self.count.clamp_min(1)).to(self.mean))
        self.pending = None

    def observe_state(self) -> dict[str, Tensor]:
        return {"usual_pull": self.mean[0].clone(), "usual_push": self.mean[1].clone()}
