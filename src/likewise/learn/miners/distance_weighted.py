from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Interval
from jaxtyping import Float
from torch import Tensor

from likewise.core.argument_checks import Positive
from likewise.core.contracts import Miner
from likewise.core.similarity import anchors, draw_columns
from likewise.core.types import LikewiseError, Pairs, Tuples

MAX_DISTANCE = 2 - 1e-4
"""Upper bound of distances: at 2 the density on the sphere is 0 and its inverse infinite."""


class DistanceWeighted(Miner):
    """One triplet per anchor: a random positive, and a negative drawn so that all distances are equally likely.

    Paper: Wu et al., Sampling Matters in Deep Embedding Learning, ICCV 2017;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eqs. 23-24.
    Formula: p uniform in P(a); n drawn with weight 1 / q(max(d_an, lower)), where q(d) = d^(D-2) (1 - d^2 / 4)^((D-3)/2) is the
        density of distances on the sphere
    Differs: the study's formula lacks the square of d. Weights are scaled row by row, so that one near duplicate does not push
        the weights of other anchors to 0. The bound on the weights in the paper is a bound on the distance here (`lower`).
        Beyond d = 1.42 the weight rises again; `upper` prevents this. The study's text applies 1.4, its code does not, and the
        default here follows the code. An anchor whose negatives are all beyond `upper` draws among them uniformly.
    Needs: unit embeddings; two samples of a class in the batch.

    Args:
        lower: smaller distances count as this distance. Paper: 0.5.
        upper: negatives further than this are not drawn; None: no bound. Paper: 1.4; code of the study: None.
    """

    def __init__(self, lower: Annotated[float, Interval(gt=0, lt=2)] = 0.5, upper: Positive | None = None):
        if upper is not None and lower >= upper:
            raise LikewiseError(f"DistanceWeighted: lower must be below upper, got lower={lower}, upper={upper}")
        self.lower = lower
        self.upper = upper

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Tuples:
        sim = sim.detach()
        weight = self.log_weight(sim, dim).where(pairs.neg, -torch.inf)
        if self.upper is not None:
            within = pairs.neg & (2 - 2 * sim <= self.upper**2)
            weight = torch.where(within.any(1, keepdim=True) & ~within, -torch.inf, weight)
            weight = torch.where(within.any(1, keepdim=True) | ~pairs.neg, weight, 0.0)
        weight = (weight - weight.amax(1, keepdim=True)).exp2()  # NaN for an anchor without negatives, which is invalid
        p, has_pos = draw_columns(pairs.pos)
        n, has_neg = draw_columns(weight)
        return Tuples(anchors(sim), p, n, has_pos & has_neg, torch.ones_like(has_pos), one_each=True)

    def log_weight(self, sim: Float[Tensor, "B R"], dim: int) -> Float[Tensor, "B R"]:
        """Return log2 of the inverse density of each distance."""
        quarter = torch.rsub(sim, 0.5, alpha=0.5).clamp(self.lower**2 / 4, MAX_DISTANCE**2 / 4)  # squared distance / 4
        return torch.add(quarter.log2() * ((2 - dim) / 2), (1 - quarter).log2_(), alpha=(3 - dim) / 2)
