from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.contracts import Miner
from likewise.core.similarity import anchors, draw_columns
from likewise.core.types import Pairs, Tuples


class Random(Miner):
    """Random triplets: a random positive and a random negative.

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020.
    Formula: for every anchor, p uniform in P(a), n uniform in N(a)
    Differs: the study's text describes one triplet per anchor, the default here; its code draws as many triplets as there are
        samples from all triplets of the batch (`per_anchor=False`), without replacement; here triplets may repeat.
    Needs: two samples of a class in the batch.

    Args:
        per_anchor: one triplet for each anchor; False: uniform over all triplets, so an anchor may have none or several.
    """

    def __init__(self, per_anchor: bool = True):
        self.per_anchor = per_anchor
        self.whole = not per_anchor

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Tuples:
        a, pos, neg = anchors(sim), pairs.pos, pairs.neg
        if not self.per_anchor:
            upto = (pos.sum(1) * neg.sum(1)).cumsum(0)
            draw = torch.rand(len(sim), device=sim.device, dtype=torch.float64) * upto[-1]
            a = torch.searchsorted(upto, draw.long(), right=True).clamp_max(len(sim) - 1)
            pos, neg = pos[a], neg[a]
        p, has_pos = draw_columns(pos)
        n, has_neg = draw_columns(neg)
        return Tuples(a, p, n, has_pos & has_neg, torch.ones_like(has_pos), self.per_anchor)
