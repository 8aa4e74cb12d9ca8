from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss
from likewise.core.similarity import log_sum_exp
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows


class ListwiseKL(Loss):
    """Makes the distribution of similarities in a list equal to that of relevances: a Kullback-Leibler divergence.

    Paper: Cao et al., Learning to Rank: From Pairwise Approach to Listwise Approach, ICML 2007 (ListNet, top one).
    Formula: l_i = sum_j p_ij log(p_ij / q_ij), p_i = softmax_j(r_ij / T_r), q_i = softmax_j(s_ij / T), over the known pairs i, j
    Differs: the paper has no temperatures, and its cross-entropy is larger by the entropy of p, a constant. The mean is over the
        anchors with a known pair.
    Graded: r is the relevance of the pair; the threshold is not used. With single labels, r is 1 for the same class, else 0.

    Args:
        temperature: T of the similarities. Ours: 0.1.
        relevance_temperature: T_r. Ours: 0.1, so a sample of relevance 1 has e^10 times the share of one of relevance 0.
    """

    relevance_inputs = ("pairs",)
    graded = True

    def __init__(self, temperature: Positive = 0.1, relevance_temperature: Positive = 0.1):
        super().__init__()
        self.temperature = temperature
        self.relevance_temperature = relevance_temperature

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(self._rows, z, y, ref, relevance=self.relevance)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        known = pairs.pos | pairs.neg
        r = (pairs.pos if pairs.value is None else pairs.value).to(sim)
        log_p, log_q = (
            x / t - log_sum_exp(x, known, 1 / t)[:, None]
            for x, t in ((r, self.relevance_temperature), (sim, self.temperature))
        )
        p = log_p.masked_fill(~known, -float("inf")).exp()
        return (p * (log_p - log_q).masked_fill(~known, 0)).sum(1), known.any(1)
