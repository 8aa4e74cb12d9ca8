from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Count
from likewise.core.contracts import Loss
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName
from likewise.learn.losses.histogram import soft_histograms


class FastAP(Loss):
    """One minus the average precision of every sample as a query, computed from a histogram of distances.

    Paper: Cakir et al., Deep Metric Learning to Rank, CVPR 2019, eq. 8 and 9.
    Formula: l_i = 1 - 1/|P_i| sum_r h+_r H+_r / H_r, with h+ and h the histograms of the squared distances from i to its
        positives and to all samples, and H+ and H their cumulative sums
    Differs: nothing. A bin with an empty cumulative sum adds 0. A query without positives has the value 0, and the mean is
        over the others.
    Graded: every known pair adds its relevance to h+ and H+ and 1 to h and H, and sum_j r_ij takes the place of |P_i|; the
        threshold of the relevance is not used.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        bins: number of bins of the squared distances, 0 to 4; a distance is split between the two bin edges around it.
            Paper: 10.
        space: space of the distances. "hyperbolic" bins hyperbolic distances (not squared), which are 0 to 4 too; the order of
            neighbours is the same, and evaluation uses the cosine. See `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs",)
    graded = True

    def __init__(self, bins: Count = 10, space: SpaceName = "cosine"):
        super().__init__()
        self.bins = bins
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(self._rows, z, y, ref, relevance=self.relevance)

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs):
        space = SPACES_BY_NAME[self.space]
        place = (1 - space.similarity(sim)) * (self.bins / (1 - space.least))
        if pairs.value is not None:
            return self._graded(place, pairs, pairs.value.to(sim))
        pos, neg = soft_histograms(place, pairs, self.bins + 1)
        pos_upto, all_upto = pos.cumsum(1), (pos + neg).cumsum(1)
        precise = pos * pos_upto / all_upto.clamp_min(torch.finfo(sim.dtype).tiny)
        count = pos_upto[:, -1]  # an integer up to rounding
        has = count.detach() > 0.5
        return (1 - precise.sum(1) / count.detach().clamp_min(0.5)).where(has, 0.0), has

    def _graded(self, place: Float[Tensor, "b R"], pairs: Pairs, r: Float[Tensor, "b R"]):
        known = pairs.pos | pairs.neg
        both = Pairs(known, torch.zeros_like(known))
        hits, every = (soft_histograms(place, both, self.bins + 1, w)[0] for w in (r, None))
        precise = hits * hits.cumsum(1) / every.cumsum(1).clamp_min(torch.finfo(place.dtype).tiny)
        total = r.masked_fill(~known, 0).sum(1)
        has = total > 0
        return (1 - precise.sum(1) / total.where(has, 1.0)).where(has, 0.0), has
