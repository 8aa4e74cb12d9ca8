from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import Loss, Miner, must_give
from likewise.losses._blockwise import triplets
from likewise.losses._hyperbolic import SPACES, must_know
from likewise.miners.distance_weighted import DistanceWeighted
from likewise.similarity import by_anchor, sides, spread
from likewise.types import LikewiseError, Ref


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
        miner: who makes the triplets. The study's best: `DistanceWeighted`; FaceNet: `SemiHard`, which collapses more easily.
        space: where distances are measured. In "hyperbolic" they run up to 4, and 2.7 is what 1 is to Euclid; it bends pull and
            push, not the order of neighbours, so miners and evaluation keep the cosine. See `likewise.losses._hyperbolic`.
    """

    def __init__(
        self, margin: float = 0.2, squared: bool = False, miner: Miner = DistanceWeighted(),
        space: Literal["cosine", "hyperbolic"] = "cosine",
    ):  # fmt: skip
        super().__init__()
        must_know(space, "Triplet")
        must_give(miner, "triplets", "Triplet", "SemiHard()")
        if margin < 0:
            raise LikewiseError(f"Triplet: margin must be 0 or more, got {margin}")
        self.margin = margin
        self.squared = squared
        self.miner = miner
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        t = triplets(z, y, ref, self.miner, self.margin / SPACES[self.space].unit)
        near, far = sides(z, ref, t)
        measure = SPACES[self.space].squared if self.squared else SPACES[self.space].distance
        pull = measure(near).where(t.pull, 0.0)
        return spread(*by_anchor((pull - measure(far) + self.margin).relu(), t, len(z)))
