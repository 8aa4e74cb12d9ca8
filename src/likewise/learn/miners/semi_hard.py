from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.contracts import Miner
from likewise.core.similarity import anchors, distance, draw_columns
from likewise.core.types import Pairs, Tuples


class SemiHard(Miner):
    """One triplet per anchor: a random positive, and a negative that is slightly further than it.

    Paper: Schroff et al., FaceNet, CVPR 2015; as one draw per anchor in Roth et al., Revisiting Training Strategies, ICML 2020.
    Formula: p uniform in P(a); n uniform in {n: d(a,p) < d(a,n) < d(a,p) + margin}, and in N(a) if that set is empty
    Differs: anchors without a positive or a negative are marked invalid instead of failing. Distances are not squared, also for
        a loss on squared distances. The study prints only the lower bound (eq. 20): `upper=False`; its code has both.
    Needs: unit embeddings; two samples of a class in the batch.

    Args:
        upper: whether a negative must also be nearer than d(a,p) + margin. Paper and code of the study: True; its print: False.
    """

    def __init__(self, upper: bool = True):
        self.upper = upper

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Tuples:
        d = distance(sim.detach())
        p, has_pos = draw_columns(pairs.pos)
        d_pos = d.gather(1, p[:, None])
        beyond = pairs.neg & (d > d_pos)
        if self.upper:
            beyond &= d < d_pos + (0.2 if margin is None else margin)
        n, has_neg = draw_columns(torch.where(beyond.any(1, keepdim=True), beyond, pairs.neg))
        valid = has_pos & has_neg
        return Tuples(anchors(sim), p, n, valid, torch.ones_like(valid), one_each=True)
