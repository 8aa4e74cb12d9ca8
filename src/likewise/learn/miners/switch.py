from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.argument_checks import Share
from likewise.core.contracts import Miner, TripletMiner
from likewise.core.similarity import draw_columns
from likewise.core.types import Pairs, Tuples
from likewise.learn.miners.distance_weighted import DistanceWeighted


class Switch(Miner):
    """Rho-regularisation: with some probability a positive takes the place of the negative, to spread the embeddings.

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020, section 5 and appendix (p_switch).
    Formula: with probability share, (a, p, n) becomes (a, a, p') with p' uniform in P(a)
    Differs: the distance of the anchor to itself is exactly 0 (`pull=False`), not the square root of a rounding error.
    Needs: a loss that takes triplets: Contrastive, Triplet, Margin, SNR.

    Args:
        share: probability that a triplet is switched. Study: 0.4 on CUB, 0.35 on CARS, 0.15 on SOP.
        miner: miner of the triplets. Study: `DistanceWeighted`.
    """

    def __init__(self, share: Share = 0.2, miner: TripletMiner = DistanceWeighted()):
        self.share = share
        self.miner = miner
        self.whole = miner.whole

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Tuples:
        t = self.miner(sim, pairs, dim, margin)
        assert isinstance(t, Tuples)
        mate, has = draw_columns(pairs.pos.index_select(0, t.a))
        swap = (torch.rand(len(t.a), device=sim.device) < self.share) & has
        # A switched triplet needs no negative, so it is valid in a batch of one class too.
        return dataclasses.replace(
            t, p=torch.where(swap, mate, t.p), n=torch.where(swap, mate, t.n), valid=t.valid | swap, pull=t.pull & ~swap
        )
