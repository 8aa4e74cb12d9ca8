from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss, TripletMiner
from likewise.core.similarity import normalise_by_count, sum_by_anchor, triplet_similarities
from likewise.core.types import Ref
from likewise.learn.losses._blockwise import triplets
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName
from likewise.learn.miners.distance_weighted import DistanceWeighted


class Triplet(Loss):
    """Keeps a positive nearer than a negative by a margin.

    Paper: Schroff et al., FaceNet, CVPR 2015; as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 2.
    Formula: l_a = [d_ap - d_an + margin]+
    Differs: `squared=True` takes squared distances, as FaceNet and the study's code do (not its text). The mean is over the
        anchors that have a triplet.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: how much further than the positive the negative must be. Paper: 0.2.
        squared: whether distances are squared.
        miner: miner of the triplets. The study's best: `DistanceWeighted`; FaceNet: `SemiHard`, which collapses more easily.
        space: space of the distances. Hyperbolic distances are 0 to 4, and 2.7 corresponds to a Euclidean 1; "hyperbolic" changes
            the strength of pull and push, not the order of neighbours, so miners and evaluation use the cosine. See
            `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs", "triplets")

    def __init__(
        self, margin: NotNegative = 0.2, squared: bool = False, miner: TripletMiner = DistanceWeighted(),
        space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        self.margin = margin
        self.squared = squared
        self.miner = miner
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        t = triplets(z, y, ref, self.miner, self.margin / SPACES_BY_NAME[self.space].unit, self.relevance)
        near, far = triplet_similarities(z, ref, t)
        measure = SPACES_BY_NAME[self.space].squared if self.squared else SPACES_BY_NAME[self.space].distance
        pull = measure(near).where(t.pull, 0.0)
        return normalise_by_count(*sum_by_anchor((pull - measure(far) + self.margin).relu(), t, len(z)))
