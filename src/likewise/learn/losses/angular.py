from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import torch
from annotated_types import Interval
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss
from likewise.core.similarity import (
    at_least_float32,
    compare,
    draw_columns,
    exact_softplus,
    full_precision,
    length,
    log1p_sum_exp,
    log_sum_exp,
    normalise_by_count,
)
from likewise.core.types import Ref

Angle = Annotated[float, Interval(gt=0, lt=math.pi / 2)]


class Angular(Loss):
    """Upper bound on the angle at the negative in the triangle with anchor and positive, added to the N-pair loss.

    Paper: Wang et al., Deep Metric Learning with Angular Loss, ICCV 2017;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 5 (three misprints).
    Formula: l_a = log(1 + sum_n e^(e_a e_n - e_a e_p)) + weight log(1 + sum_n e^f_apn) + penalty |e_a|^2,
        f_apn = 4 tan^2(alpha) (z_a + z_p) z_n - 2 (1 + tan^2(alpha)) z_a z_p
    Differs: e is the raw embedding and z = e / |e|, also for negatives: only the N-pair term and the penalty depend on lengths.
        One positive p is drawn for each anchor and used in both terms, as in the study's code; the mean is over the anchors
        that have one. `squared_penalty=False` takes |e_a|, as that code does (not the text).
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        alpha: the largest angle, in radians. Paper: 36 to 55 degrees; 45 degrees in the study, taken here.
        weight: weight of the angular term. Study: 2.
        penalty: weight of the length penalty. Study: 0.005.
        squared_penalty: whether the penalty is on the squared length. Study: squared in its text, not squared in its code.
    """

    input = "raw"
    relevance_inputs = ("pairs",)

    def __init__(
        self, alpha: Angle = math.pi / 4, weight: NotNegative = 2.0, penalty: NotNegative = 0.005,
        squared_penalty: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.alpha = alpha
        self.weight = weight
        self.penalty = penalty
        self.squared_penalty = squared_penalty

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            e = at_least_float32(z)
            size = sizes = length(e)
            z = others = e * (1 / size)[:, None]
            if ref is not None:
                sizes = length(ref.z)
                others = at_least_float32(ref.z) * (1 / sizes)[:, None]
                ref = dataclasses.replace(ref, z=others)
            sim, pairs = compare(z, y, ref, relevance=self.relevance)
            p, has = draw_columns(pairs.pos)
            mate = sim.gather(1, p[:, None]).squeeze(1)
            raw = mate * size * sizes.index_select(0, p)
            pull = log1p_sum_exp(torch.addcmul(-raw[:, None], sim, torch.outer(size, sizes)), pairs.neg)
            # (z_a + z_p) z_n: within the batch, the products of the positive are already in `sim`
            of_mate = sim.index_select(0, p) if ref is None else others.index_select(0, p) @ others.T
            tan2 = math.tan(self.alpha) ** 2
            angle = log_sum_exp(sim + of_mate, pairs.neg, 4 * tan2) - 2 * (1 + tan2) * mate
            each = (pull + self.weight * exact_softplus(angle)).where(has, 0.0)
            return normalise_by_count(each, has) + self.penalty * length(e, self.squared_penalty)
