from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import PositiveOrInfinite, ShareAboveZero
from likewise.core.contracts import Confidence
from likewise.core.similarity import at_least_float32
from likewise.core.types import LikewiseError, SampleWeights
from likewise.learn.confidence.thresholds import Average, weigh


class SuperLoss(Confidence):
    """Higher sample weights for losses below the average, lower ones above: easy samples first, wrong labels get little weight.

    Paper: Castells et al., SuperLoss: A Generic Loss for Robust Curriculum Learning, NeurIPS 2020.
    Formula: w_i = e^(-W( max(-2/e, (l_i - tau) / lambda) / 2 )), W is Lambert's; w_i is in (0, e]
    Differs: the objective is w_i l_i; the paper's (l_i - tau) w_i + lambda (log w_i)^2 has the same gradient, as w_i is constant.
        Averages are read before they are updated; the paper does not specify the order. Weights are per sample; for similarity
        learning the paper has one weight per pair of the contrastive loss. A sample whose loss is not finite gets weight 0.

    Args:
        classes: number of training classes; the run fills it in.
        lam: lambda; a smaller value spreads the weights more. Published: 1 (CIFAR-10), 0.25 (CIFAR-100).
        tau: threshold: "mean" of all losses so far, "ema", a moving average of the batch means, "log_classes", or a number.
        rate: weight of the newest batch in the moving average. Published: 0.1.
    """

    needs_loss = True

    def __init__(
        self,
        classes: int,
        lam: PositiveOrInfinite = 1.0,
        tau: Literal["mean", "ema", "log_classes"] | float = "mean",
        rate: ShareAboveZero = 0.1,
    ):
        super().__init__()
        self.classes = classes
        self.lam = lam
        self.tau = tau
        self.rate = rate
        self.uses_classes = tau == "log_classes"
        self.pending: Tensor | None = None  # the losses of this step, used by after_step
        if tau in ("mean", "ema"):
            self.average = Average(rate if tau == "ema" else None)

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        if loss is None:
            raise LikewiseError("SuperLoss: it needs the training loss, got None; pass one loss per sample")
        each = at_least_float32(loss.detach())
        if self.tau in ("mean", "ema"):
            tau = self.average(each)
            self.pending = each if self.training else None
        else:
            tau = each.new_full((), math.log(self.classes) if self.tau == "log_classes" else float(self.tau))
        return SampleWeights(w=weigh(each, tau, self.lam, -2 / math.e), suspicion=each, threshold=tau.to(each))

    def after_step(self, step: int) -> None:
        if self.pending is not None:
            self.average.add(self.pending)
            self.pending = None
