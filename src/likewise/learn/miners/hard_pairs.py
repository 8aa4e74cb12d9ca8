from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Miner
from likewise.core.types import Pairs


class HardPairs(Miner):
    """Hard pairs: positives further than the nearest negative, and negatives nearer than the furthest positive.

    Paper: Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning, CVPR 2019.
    Formula: keep p where s_ip - eps < max_n s_in, keep n where s_in + eps > min_p s_ip
    Differs: nothing. An anchor without positives or without negatives keeps no pair.

    Args:
        eps: tolerance; pairs that are easier by less than this are kept too. Paper: 0.1.
    """

    yields = "pairs"

    def __init__(self, eps: NotNegative = 0.1):
        self.eps = eps

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Pairs:
        sim = sim.detach()
        nearest_neg = sim.where(pairs.neg, -torch.inf).amax(1, keepdim=True)
        furthest_pos = sim.where(pairs.pos, torch.inf).amin(1, keepdim=True)
        return Pairs(pairs.pos & (sim < nearest_neg + self.eps), pairs.neg & (sim > furthest_pos - self.eps))
