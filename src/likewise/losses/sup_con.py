from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss
from likewise.losses._blockwise import by_rows
from likewise.losses._hyperbolic import SPACES_BY_NAME, check_space
from likewise.similarity import log_sum_exp, mean_over
from likewise.types import LikewiseError, Pairs, Ref


class SupCon(Loss):
    """Supervised contrastive loss: softmax of each positive against all other samples of the batch.

    Paper: Khosla et al., Supervised Contrastive Learning, NeurIPS 2020, eq. 2 (the sum outside the logarithm).
    Formula: l_i = -1/|P_i| sum_p log( e^(s_ip / T) / sum_{j != i} e^(s_ij / T) )
    Differs: nothing. A sample without positives has the value 0, and the mean is over the others. If each class has exactly two
        samples (two views of an image, its row number as label) this is NT-Xent (Chen et al., SimCLR, ICML 2020).
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        temperature: T. Paper: 0.1.
        space: space of the similarities. "hyperbolic" changes the strength of pull and push, not the order of neighbours; a
            similarity of 1 or 0.5 means the same, and miners and evaluation use the cosine. See `likewise.losses._hyperbolic`.
    """

    def __init__(self, temperature: float = 0.1, space: Literal["cosine", "hyperbolic"] = "cosine"):
        super().__init__()
        check_space(space, "SupCon")
        if temperature <= 0:
            raise LikewiseError(f"SupCon: temperature must be above 0, got {temperature}; the paper takes 0.1")
        self.temperature = temperature
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(self._rows, z, y, ref)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        sim = SPACES_BY_NAME[self.space].similarity(sim)
        total = log_sum_exp(sim, pairs.pos | pairs.neg, 1 / self.temperature)
        has = pairs.pos.any(1)
        return (total - mean_over(sim, pairs.pos) / self.temperature).where(has, 0.0), has
