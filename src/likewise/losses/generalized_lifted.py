from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss
from likewise.losses._blockwise import by_rows
from likewise.similarity import EMPTY_SUM_THRESHOLD, length, log_sum_exp, neg_squared, raw_distance
from likewise.types import LikewiseError, Pairs, Ref


class GeneralizedLifted(Loss):
    """Keep the furthest class mate nearer than the nearest stranger, all of them weighed softly.

    Paper: Hermans et al., In Defense of the Triplet Loss for Person Re-Identification, 2017;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 3.
    Formula: l_a = [log sum_p e^d_ap + log sum_n e^(margin - d_an)]+ + penalty |z_a|^2
    Differs: on raw embeddings, as in the study. The first part is the mean over the anchors that have a class mate and a
        stranger (the study's print leaves the 1/b out), the second over all samples; an anchor without either asks for nothing.
        `squared_penalty=False` takes |z_a|, as the study's code (not its print) does.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: how much further the strangers must be. Paper: 1.
        penalty: weight of the embeddings' lengths. Study: 0.005.
        squared_penalty: whether the length is squared. Study: squared in print, plain in its code.
    """

    input = "raw"

    def __init__(self, margin: float = 1.0, penalty: float = 0.005, squared_penalty: bool = True):
        super().__init__()
        if penalty < 0:
            raise LikewiseError(f"GeneralizedLifted: penalty must be 0 or more, got {penalty}; 0 turns it off")
        self.margin = margin
        self.penalty = penalty
        self.squared_penalty = squared_penalty

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        each = by_rows(self._rows, z, y, ref, similarity=neg_squared)
        return each + self.penalty * length(z, self.squared_penalty)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        d = raw_distance(sim)
        pull = log_sum_exp(d, pairs.pos)
        push = log_sum_exp(d, pairs.neg, -1.0) + self.margin
        whole = (pull > EMPTY_SUM_THRESHOLD) & (push > EMPTY_SUM_THRESHOLD)
        return (pull + push).relu().where(whole, 0.0), whole
