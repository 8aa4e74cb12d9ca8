from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss, Miner
from likewise.miners.semi_hard import SemiHard
from likewise.similarity import compare, distance, spread, squared_distance
from likewise.types import LikewiseError, Ref, Tuples


class Triplet(Loss):
    """Keep a class mate nearer than a stranger, by a margin.

    Paper: Schroff et al., FaceNet, CVPR 2015; as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 2.
    Formula: l_a = [d_ap - d_an + margin]+
    Differs: `squared=True` takes squared distances, as FaceNet and the study's code (not its print) do. The mean is over the
        anchors that have a triplet.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: how much further the stranger must be. Paper: 0.2.
        squared: whether distances are squared.
        miner: who makes the triplets. `SemiHard` by default.
    """

    def __init__(self, margin: float = 0.2, squared: bool = False, miner: Miner = SemiHard()):
        super().__init__()
        if margin < 0:
            raise LikewiseError(f"Triplet: margin must be 0 or more, got {margin}")
        self.margin = margin
        self.squared = squared
        self.miner = miner

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        sim, pairs = compare(z, y, ref)
        t = self.miner(sim, pairs, z.shape[1], self.margin)
        if not isinstance(t, Tuples):
            raise LikewiseError(
                f"Triplet needs a miner of triplets, such as SemiHard(), got {type(self.miner).__name__}"
            )
        measure = squared_distance if self.squared else distance
        pull = measure(sim[t.a, t.p]).where(t.pull, 0.0)
        push = measure(sim[t.a, t.n])
        return spread((pull - push + self.margin).relu(), t.valid)
