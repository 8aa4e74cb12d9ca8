from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss, PairMiner
from likewise.core.similarity import log1p_sum_exp, log_weights
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName
from likewise.learn.miners.hard_pairs import HardPairs


class MultiSimilarity(Loss):
    """Pair loss that weights every pair by its own similarity and by the similarities of the anchor's other pairs.

    Paper: Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning, CVPR 2019.
    Formula: l_i = 1/a log(1 + sum_p e^(-a (s_ip - m))) + 1/b log(1 + sum_n e^(b (s_in - m)))
    Differs: nothing. Pairs the miner leaves out are left out of the sums; the mean is over all anchors of the batch.
    Graded: a positive of relevance r has the weight r in its sum, a negative 1 - r; the threshold separates the two.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        alpha: a, sharpness of the pull. Paper: 2.
        beta: b, sharpness of the push. Paper: 50; 40 in Roth et al. 2020, taken here.
        base: m, the similarity that separates positives from negatives. Paper: 1; 0.5 in the authors' code and in Roth et al.,
            taken here.
        miner: miner of the pairs. Paper: HardPairs(eps=0.1); None: all pairs.
        space: space of the similarities. "hyperbolic" changes the strength of pull and push, not the order of neighbours; a
            similarity of 1 or 0.5 means the same, and miners and evaluation use the cosine. See `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs",)
    graded = True

    def __init__(
        self, alpha: Positive = 2.0, beta: Positive = 40.0, base: float = 0.5, miner: PairMiner | None = HardPairs(eps=0.1),
        space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.miner = miner
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(self._rows, z, y, ref, miner=self.miner, relevance=self.relevance)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs) -> Float[Tensor, "b"]:
        above = SPACES_BY_NAME[self.space].similarity(sim) - self.base
        near = far = above
        if pairs.value is not None:  # the logarithm of a weight is added to the exponent of its pair
            log_r, log_rest = log_weights(pairs.value.to(sim))
            near, far = above.sub(log_r, alpha=1 / self.alpha), above.add(log_rest, alpha=1 / self.beta)
        pull = log1p_sum_exp(near, pairs.pos, -self.alpha) / self.alpha
        push = log1p_sum_exp(far, pairs.neg, self.beta) / self.beta
        return pull + push
