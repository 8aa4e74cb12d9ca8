from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss
from likewise.core.similarity import log_sum_exp, mean_over, weighted_mean
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName


class SupCon(Loss):
    """Supervised contrastive loss: softmax of each positive against all other samples of the batch.

    Paper: Khosla et al., Supervised Contrastive Learning, NeurIPS 2020, eq. 2 (the sum outside the logarithm).
    Formula: l_i = -1/|P_i| sum_p log( e^(s_ip / T) / sum_{j != i} e^(s_ij / T) )
    Differs: nothing. A sample without positives has the value 0, and the mean is over the others. If each class has exactly two
        samples (two views of an image, its row number as label) this is NT-Xent (Chen et al., SimCLR, ICML 2020).
    Graded: -sum_j w_ij log(...) with w_ij = r_ij / sum_k r_ik over all known pairs, as in Kim et al., Generalized Supervised
        Contrastive Learning, 2022; the threshold of the relevance is not used.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        temperature: T. Paper: 0.1.
        space: space of the similarities. "hyperbolic" changes the strength of pull and push, not the order of neighbours; a
            similarity of 1 or 0.5 means the same, and miners and evaluation use the cosine. See `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs",)
    graded = True

    def __init__(self, temperature: Positive = 0.1, space: SpaceName = "cosine"):
        super().__init__()
        self.temperature = temperature
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(self._rows, z, y, ref, relevance=self.relevance)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        sim = SPACES_BY_NAME[self.space].similarity(sim)
        known = pairs.pos | pairs.neg
        total = log_sum_exp(sim, known, 1 / self.temperature)
        if pairs.value is not None:
            r = pairs.value.to(sim).masked_fill(~known, 0)
            return (total - weighted_mean(sim, r) / self.temperature).where(r.any(1), 0.0), r.any(1)
        has = pairs.pos.any(1)
        return (total - mean_over(sim, pairs.pos) / self.temperature).where(has, 0.0), has
