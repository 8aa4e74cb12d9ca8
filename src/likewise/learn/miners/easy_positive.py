from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.contracts import Miner
from likewise.core.similarity import anchors, draw_columns
from likewise.core.types import Pairs, Tuples


class EasyPositive(Miner):
    """One triplet per anchor with its nearest positive, so that a class may keep several clusters.

    Paper: Xuan et al., Improved Embeddings with Easy Positive Triplet Mining, WACV 2020.
    Formula: p = arg min_p d(a,p); n = arg min_n d(a,n) among negatives beyond p ("semi-hard") or among all ("hard"), or a
        random one ("random")
    Differs: if no negative is beyond the positive, semi-hard takes the nearest negative, so that every anchor has a triplet.
    Needs: two samples of a class in the batch.

    Args:
        negative: which negative is chosen: "semi-hard", "hard" or "random". Paper: semi-hard works best.
    """

    def __init__(self, negative: Literal["semi-hard", "hard", "random"] = "semi-hard"):
        self.negative = negative

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Tuples:
        sim = sim.detach()
        nearest_pos, p = sim.masked_fill(~pairs.pos, -torch.inf).max(1)
        if self.negative == "random":
            n, has_neg = draw_columns(pairs.neg)
        else:
            among = sim.masked_fill(~pairs.neg, -torch.inf)
            if self.negative == "semi-hard":
                beyond = among.masked_fill(sim >= nearest_pos[:, None], -torch.inf)
                among = torch.where((beyond.amax(1) > -torch.inf)[:, None], beyond, among)
            nearest_neg, n = among.max(1)
            has_neg = torch.isfinite(nearest_neg)
        valid = torch.isfinite(nearest_pos) & has_neg
        return Tuples(anchors(sim), p, n, valid, torch.ones_like(valid), one_each=True)
