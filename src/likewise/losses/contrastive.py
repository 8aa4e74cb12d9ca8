from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss, Miner
from likewise.similarity import compare, distance, mean_over, spread
from likewise.types import LikewiseError, Ref, Tuples


class Contrastive(Loss):
    """Pull class mates together, push strangers out of a margin.

    Paper: Hadsell et al., Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 1.
    Formula: l_i = [d_ip - pull_margin]+ + [margin - d_in]+
    Differs: a miner of triplets gives the paper's form, one p and one n per anchor. With all pairs (`miner=None`) or a miner
        of pairs, the pull is the mean over the positives and the push the mean over the negatives within the margin, so that it
        does not fade as the batch grows.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: negatives nearer than this are pushed away. Paper: 1.
        pull_margin: positives nearer than this are left alone. Paper: 0.
        miner: which pairs count; None takes all of them.
    """

    def __init__(self, margin: float = 1.0, pull_margin: float = 0.0, miner: Miner | None = None):
        super().__init__()
        if not 0 <= pull_margin <= margin <= 2:
            raise LikewiseError(
                "Contrastive: 0 <= pull_margin <= margin <= 2 must hold (unit vectors are at most 2 apart), "
                f"got pull_margin={pull_margin}, margin={margin}"
            )
        self.margin = margin
        self.pull_margin = pull_margin
        self.miner = miner

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        sim, pairs = compare(z, y, ref)
        chosen = self.miner(sim, pairs, z.shape[1], self.margin) if self.miner else pairs
        if isinstance(chosen, Tuples):
            pull = distance(sim[chosen.a, chosen.p]).where(chosen.pull, 0.0)
            push = distance(sim[chosen.a, chosen.n])
            return spread((pull - self.pull_margin).relu() + (self.margin - push).relu(), chosen.valid)
        d = distance(sim)
        near = chosen.neg & (d.detach() < self.margin)
        return mean_over((d - self.pull_margin).relu(), chosen.pos) + mean_over(self.margin - d, near)
