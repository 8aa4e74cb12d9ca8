from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss
from likewise.core.similarity import EMPTY_SUM_THRESHOLD, length, log_sum_exp, neg_squared, raw_distance
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows


class GeneralizedLifted(Loss):
    """Lifted-structure loss per anchor: soft maximum of positive distances against soft minimum of negative distances.

    Paper: Hermans et al., In Defense of the Triplet Loss for Person Re-Identification, 2017;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 3.
    Formula: l_a = [log sum_p e^d_ap + log sum_n e^(margin - d_an)]+ + penalty |z_a|^2
    Differs: on raw embeddings, as in the study. The first term is the mean over the anchors that have a positive and a negative
        (the study's text omits the 1/b), the penalty over all samples; the first term of other anchors is 0.
        `squared_penalty=False` takes |z_a|, as the study's code does (not its text).
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: how much further than the positives the negatives must be. Paper: 1.
        penalty: weight of the length penalty. Study: 0.005.
        squared_penalty: whether the penalty is on the squared length. Study: squared in its text, not squared in its code.
    """

    input = "raw"
    relevance_inputs = ("pairs",)

    def __init__(self, margin: float = 1.0, penalty: NotNegative = 0.005, squared_penalty: bool = True):
        super().__init__()
        self.margin = margin
        self.penalty = penalty
        self.squared_penalty = squared_penalty

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        each = by_rows(self._rows, z, y, ref, similarity=neg_squared, relevance=self.relevance)
        return each + self.penalty * length(z, self.squared_penalty)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        d = raw_distance(sim)
        pull = log_sum_exp(d, pairs.pos)
        push = log_sum_exp(d, pairs.neg, -1.0) + self.margin
        has_both = (pull > EMPTY_SUM_THRESHOLD) & (push > EMPTY_SUM_THRESHOLD)
        return (pull + push).relu().where(has_both, 0.0), has_both
