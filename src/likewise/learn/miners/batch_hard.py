from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.contracts import Miner
from likewise.core.similarity import anchors
from likewise.core.types import Pairs, Tuples


class BatchHard(Miner):
    """The hardest triplet of every anchor: its furthest positive and its nearest negative.

    Paper: Hermans et al., In Defense of the Triplet Loss for Person Re-Identification, 2017.
    Formula: p = arg max_p d(a,p), n = arg min_n d(a,n)
    Differs: nothing. Among equal distances, the first sample is taken.
    Needs: two samples of a class in the batch.
    """

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Tuples:
        sim = sim.detach()
        furthest, p = sim.masked_fill(~pairs.pos, torch.inf).min(1)
        nearest, n = sim.masked_fill(~pairs.neg, -torch.inf).max(1)
        valid = torch.isfinite(furthest) & torch.isfinite(nearest)
        return Tuples(anchors(sim), p, n, valid, torch.ones_like(valid), one_each=True)
