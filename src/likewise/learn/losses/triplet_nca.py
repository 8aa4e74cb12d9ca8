from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Loss, TripletMiner
from likewise.core.similarity import exact_softplus, normalise_by_count, sum_by_anchor, triplet_similarities
from likewise.core.types import Ref
from likewise.learn.losses._blockwise import triplets
from likewise.learn.miners.easy_positive import EasyPositive


class TripletNCA(Loss):
    """Softmax over the cosines of a triplet: minus the log-probability of the positive against the negative.

    Paper: Xuan et al., Improved Embeddings with Easy Positive Triplet Mining, WACV 2020.
    Formula: l_a = -log( e^(s_ap / T) / (e^(s_ap / T) + e^(s_an / T)) )
    Differs: the mean is over the anchors that have a triplet. With the rho switch, which leaves out the pull, s_ap is 1.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        temperature: T. Authors' code: 1.
        miner: miner of the triplets. Paper: `EasyPositive`; it calls the semi-hard form EPSHN, the hard one EPHN.
    """

    relevance_inputs = ("pairs", "triplets")

    def __init__(self, temperature: Positive = 1.0, miner: TripletMiner = EasyPositive()):
        super().__init__()
        self.temperature = temperature
        self.miner = miner

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        t = triplets(z, y, ref, self.miner, relevance=self.relevance)
        near, far = triplet_similarities(z, ref, t)
        value = exact_softplus((far - near.where(t.pull, 1.0)) / self.temperature)
        return normalise_by_count(*sum_by_anchor(value, t, len(z)))
