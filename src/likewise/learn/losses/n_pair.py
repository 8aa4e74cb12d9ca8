from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss
from likewise.core.similarity import draw_columns, exact_softplus, length, log1p_sum_exp, log_sum_exp
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows


class NPair(Loss):
    """Softmax over dot products: a positive against all negatives of the batch.

    Paper: Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NeurIPS 2016;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 4.
    Formula: l_ap = log(1 + sum_n e^(z_a z_n - z_a z_p)); L = mean_ap l_ap + penalty mean_a |z_a|^2
    Differs: on raw embeddings. The negatives are all samples of other classes, as in the study, not one per class. The mean is
        over all ordered positive pairs, as in the study's text; its code draws one positive per anchor (`one_positive=True`),
        which is the same with two samples per class, and the same on average if classes have equal sizes. The value of a sample
        is the scaled sum over its own pairs. `squared_penalty=False` takes |z_a|, as that code does.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        one_positive: whether one positive is drawn for each anchor; False: all positives are used.
        penalty: weight of the length penalty. Study: 0.005 (Sohn's 0.02 / 4).
        squared_penalty: whether the penalty is on the squared length. Study: squared in its text, not squared in its code.
    """

    input = "raw"
    relevance_inputs = ("pairs",)

    def __init__(self, one_positive: bool = False, penalty: NotNegative = 0.005, squared_penalty: bool = True):
        super().__init__()
        self.one_positive = one_positive
        self.penalty = penalty
        self.squared_penalty = squared_penalty

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        each = by_rows(self._rows, z, y, ref, relevance=self.relevance)
        return each + self.penalty * length(z, self.squared_penalty)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        if self.one_positive:
            p, has = draw_columns(pairs.pos)
            positive = sim.gather(1, p[:, None]).squeeze(1)
            return log1p_sum_exp(sim - positive[:, None], pairs.neg).where(has, 0.0), has
        negatives = log_sum_exp(sim, pairs.neg)
        every = exact_softplus(negatives[:, None] - sim).masked_fill(~pairs.pos, 0)
        return every.sum(1), pairs.pos.sum(1)
