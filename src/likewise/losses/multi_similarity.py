from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss, Miner
from likewise.miners.hard_pairs import HardPairs
from likewise.similarity import compare, log1p_sum_exp
from likewise.types import LikewiseError, Pairs, Ref


class MultiSimilarity(Loss):
    """Pull and push every pair with a weight set by its own and its neighbours' similarity.

    Paper: Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning, CVPR 2019.
    Formula: l_i = 1/a log(1 + sum_p e^(-a (s_ip - m))) + 1/b log(1 + sum_n e^(b (s_in - m)))
    Differs: nothing. Pairs the miner leaves out are left out of the sums; the mean is over all anchors of the batch.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        alpha: a, sharpness of the pull. Paper: 2.
        beta: b, sharpness of the push. Paper: 50; 40 in Roth et al. 2020, taken here.
        base: m, the similarity that pulls and pushes meet at. Paper: 1; 0.5 in the authors' code and in Roth et al., taken here.
        miner: which pairs count. Paper: HardPairs(eps=0.1); None takes all of them.
    """

    def __init__(
        self, alpha: float = 2.0, beta: float = 40.0, base: float = 0.5, miner: Miner | None = HardPairs(eps=0.1)
    ):
        super().__init__()
        if alpha <= 0 or beta <= 0:
            raise LikewiseError(f"MultiSimilarity: alpha and beta must be above 0, got alpha={alpha}, beta={beta}")
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.miner = miner

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        sim, pairs = compare(z, y, ref)
        if self.miner:
            pairs = self.miner(sim, pairs, z.shape[1], None)
            if not isinstance(pairs, Pairs):
                raise LikewiseError(
                    f"MultiSimilarity needs a miner of pairs, such as HardPairs(), got {type(self.miner).__name__}"
                )
        pull = log1p_sum_exp(-self.alpha * (sim - self.base), pairs.pos) / self.alpha
        push = log1p_sum_exp(self.beta * (sim - self.base), pairs.neg) / self.beta
        return pull + push
