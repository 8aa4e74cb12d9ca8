from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss, TripletMiner
from likewise.core.similarity import (
    MIN_SQUARED_DISTANCE,
    at_least_float32,
    full_precision,
    normalise_by_count,
    sum_by_anchor,
)
from likewise.core.types import Ref
from likewise.learn.losses._blockwise import triplets
from likewise.learn.miners.distance_weighted import DistanceWeighted


class SNR(Loss):
    """Triplet loss on signal-to-noise ratios: variance of the difference of two embeddings over variance of the anchor.

    Paper: Yuan et al., Signal-to-Noise Ratio: A Robust Distance Metric for Deep Metric Learning, CVPR 2019;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 15 (printed without the variances).
    Formula: L = 1/active sum_a [r_ap - r_an + margin]+ + penalty mean_a |sum_m z_am|, r_ij = var(z_i - z_j) / var(z_i) over the
        coordinates m
    Differs: `active` counts the triplets above 0 over the whole batch, as in the study, so the values of all anchors have one
        common factor; without an active triplet the first term is 0. `count="all"` divides by all triplets, which is the
        study's printed sum as a mean. The penalty is over all samples. On unit embeddings, as in the study, whose code sets
        the penalty to 0 whenever triplets are mined by distance (`penalty=0`), but not with the rho switch.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: how much larger the ratio to the negative must be. Study: 0.2.
        penalty: weight of the absolute sum of coordinates, which keeps their mean near 0. Study: 0.005.
        miner: miner of the triplets. Study: `DistanceWeighted`.
        count: what the sum is divided by: "active" triplets (the study's code) or "all" (its print).
    """

    relevance_inputs = ("pairs", "triplets")

    def __init__(
        self, margin: NotNegative = 0.2, penalty: NotNegative = 0.005, miner: TripletMiner = DistanceWeighted(),
        count: Literal["active", "all"] = "active",
    ):  # fmt: skip
        super().__init__()
        self.margin = margin
        self.penalty = penalty
        self.miner = miner
        self.count = count

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        t = triplets(z, y, ref, self.miner, self.margin, self.relevance)
        with full_precision(z):
            z = at_least_float32(z)
            signal = centred(z)
            others = signal if ref is None else centred(at_least_float32(ref.z))
            anchor = signal.index_select(0, t.a)
            power = signal_power(anchor)
            pull = (anchor - others.index_select(0, t.p)).square().sum(1) / power
            push = (anchor - others.index_select(0, t.n)).square().sum(1) / power
            value = (pull.where(t.pull, 0.0) - push + self.margin).relu()
            total, count = sum_by_anchor(value, t, len(z))
            if self.count == "active":
                count, _ = sum_by_anchor((value > 0).to(value), t, len(z))
            return normalise_by_count(total, count) + self.penalty * z.sum(1).abs()


def centred(z: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    """Return every embedding minus the mean of its coordinates."""
    return z - z.mean(1, keepdim=True)


def signal_power(signal: Float[Tensor, "B D"]) -> Float[Tensor, "B"]:
    """Return the sum of the squared coordinates of every centred embedding, above 0."""
    return signal.square().sum(1).clamp_min(MIN_SQUARED_DISTANCE)
