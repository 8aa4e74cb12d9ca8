from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.argument_checks import Positive, ShareBelowOne
from likewise.core.contracts import Loss, PairMiner
from likewise.core.similarity import log_sum_exp, log_weights
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName


class Circle(Loss):
    """Pair loss in which every pair has a weight that grows with its distance from its optimum.

    Paper: Sun et al., Circle Loss: A Unified Perspective of Pair Similarity Optimization, CVPR 2020, eq. 6 to 9.
    Formula: l_i = log(1 + sum_n e^(gamma a_n (s_in - margin)) * sum_p e^(-gamma a_p (s_ip - 1 + margin)))
        with a_p = [1 + margin - s_ip]+ and a_n = [s_in + margin]+
    Differs: nothing; a_p and a_n are constants to the gradient, as in the paper. An anchor without positives or without
        negatives has the value 0, and the mean is over the others.
    Graded: a positive of relevance r has the weight r in its sum, a negative 1 - r; the threshold separates the two.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: m, the paper's relaxation; positives should be above 1 - m, negatives below m. Paper: 0.4 for retrieval.
        gamma: scale. Paper: 80 for retrieval.
        miner: miner of the pairs; None: all pairs.
        space: space of the similarities. "hyperbolic" changes the strength of pull and push, not the order of neighbours; a
            similarity of 1 or 0.5 means the same, and miners and evaluation use the cosine. See `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs",)
    graded = True

    def __init__(
        self, margin: ShareBelowOne = 0.4, gamma: Positive = 80.0, miner: PairMiner | None = None,
        space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        self.margin = margin
        self.gamma = gamma
        self.miner = miner
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(self._rows, z, y, ref, miner=self.miner, relevance=self.relevance)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        sim = SPACES_BY_NAME[self.space].similarity(sim)
        now = sim.detach()
        pull = (1 + self.margin - now).relu() * (sim - (1 - self.margin))
        push = (now + self.margin).relu() * (sim - self.margin)
        if pairs.value is not None:  # the logarithm of a weight is added to the exponent of its pair
            log_r, log_rest = log_weights(pairs.value.to(sim))
            pull, push = pull.sub(log_r, alpha=1 / self.gamma), push.add(log_rest, alpha=1 / self.gamma)
        total = log_sum_exp(pull, pairs.pos, -self.gamma) + log_sum_exp(push, pairs.neg, self.gamma)
        both = pairs.pos.any(1) & pairs.neg.any(1)
        return F.softplus(total).where(both, 0.0), both
