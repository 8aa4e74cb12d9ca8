from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.contracts import Miner
from likewise.core.similarity import anchors, draw_columns
from likewise.core.types import Pairs, Tuples


class SoftHard(Miner):
    """One random hard triplet per anchor: a positive further than some negative, a negative nearer than some positive.

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020, eqs. 21-22.
    Formula: p uniform in {p: d(a,p) > min_n d(a,n)}, n uniform in {n: d(a,n) < max_p d(a,p)}; in P(a) and N(a) if these are
        empty
    Differs: the printed formula has arg max and arg min in place of max and min, and swaps indices of labels.
    Needs: two samples of a class in the batch.
    """

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Tuples:
        sim = sim.detach()
        furthest_pos = sim.masked_fill(~pairs.pos, torch.inf).amin(1, keepdim=True)
        nearest_neg = sim.masked_fill(~pairs.neg, -torch.inf).amax(1, keepdim=True)
        hard = (furthest_pos < nearest_neg) & torch.isfinite(furthest_pos) & torch.isfinite(nearest_neg)
        # Either both sets are empty or neither is; if both are, infinite bounds admit all pairs.
        p, has_pos = draw_columns(pairs.pos & (sim < torch.where(hard, nearest_neg, torch.inf)))
        n, has_neg = draw_columns(pairs.neg & (sim > torch.where(hard, furthest_pos, -torch.inf)))
        return Tuples(anchors(sim), p, n, has_pos & has_neg, torch.ones_like(has_pos), one_each=True)
