from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.argument_checks import NotNegative, Positive
from likewise.core.contracts import Loss, Relevance, TripletMiner
from likewise.core.similarity import normalise_by_count, sum_by_anchor, triplet_similarities
from likewise.core.types import LikewiseError, Ref
from likewise.learn.losses._blockwise import triplets
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName
from likewise.learn.miners.distance_weighted import DistanceWeighted


class Margin(Loss):
    """Keeps positives within a learned boundary and negatives beyond it, both by a margin.

    Paper: Wu et al., Sampling Matters in Deep Embedding Learning, ICCV 2017;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 10 (printed without the hinges).
    Formula: L = 1/active sum_a ( [d_ap - b_a + margin]+ + [b_a - d_an + margin]+ ) + nu sum_c b_c,
        b_a: boundary of the anchor's class
    Differs: nothing. `active` counts the brackets above 0 over the whole batch, so the values of all anchors have one common
        factor; `count="triplets"` counts triplets with any bracket above 0, as the study's code does; `count="all"` counts all
        triplets, which is the study's printed sum as a mean. The last term is added to every value. There is no offset per
        image.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        classes: number of training classes; the run fills it in.
        margin: half the width of the zone around the boundary that should be empty. Paper: 0.2.
        beta: the boundary b at the start. Paper: 1.2; 0.6 and 1.2 in Roth et al. 2020.
        per_class: one boundary per class; False: one for all classes.
        learn: whether boundaries are trained.
        nu: weight of the sum of the boundaries. 0 in Roth et al. 2020.
        miner: miner of the triplets. Paper: DistanceWeighted().
        count: what the sum is divided by: "terms" (paper), "triplets" (the study's code) or "all" (the study's print).
        space: space of the distances. Hyperbolic distances are 0 to 4, and 2.7 corresponds to a Euclidean 1; "hyperbolic" changes
            the strength of pull and push, not the order of neighbours, so miners and evaluation use the cosine. See
            `likewise.losses._hyperbolic`.
    """

    lr_factor = 50.0
    relevance_inputs = ("pairs", "triplets")

    def __init__(
        self, classes: int | None = None, margin: NotNegative = 0.2, beta: Positive = 1.2, per_class: bool = True,
        learn: bool = True, nu: NotNegative = 0.0, miner: TripletMiner = DistanceWeighted(),
        count: Literal["terms", "triplets", "all"] = "terms", space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        most = SPACES_BY_NAME[space].furthest
        if beta >= most:
            raise LikewiseError(
                f"Margin: beta must be below {most:g}, the largest distance of unit vectors, got {beta}"
            )
        if per_class and classes is None:
            raise LikewiseError(
                "Margin: a boundary per class needs classes, got None; give classes, or set per_class=False"
            )
        self.classes = classes
        self.margin = margin
        self.beta = beta
        self.per_class = per_class
        self.learn = learn
        self.nu = nu
        self.miner = miner
        self.count = count
        self.space = space
        rows = 1 if classes is None or not per_class else classes
        self.boundaries = nn.Parameter(torch.full((rows, 1), float(beta)), requires_grad=learn)

    def check_relevance(self, relevance: Relevance) -> None:
        super().check_relevance(relevance)
        if self.per_class and (relevance.by != "class" or relevance.ids != self.classes):
            raise LikewiseError(
                f"Margin: a boundary per class needs one class per sample, got {type(relevance).__name__}; set per_class=False"
            )

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        t = triplets(z, y, ref, self.miner, self.margin / SPACES_BY_NAME[self.space].unit, self.relevance)
        near, far = triplet_similarities(z, ref, t)
        measure = SPACES_BY_NAME[self.space].distance
        boundaries = self.boundaries.to(near).squeeze(1)
        boundary = boundaries.index_select(0, y if t.one_each else y[t.a]) if self.per_class else boundaries
        pull = (measure(near).where(t.pull, 0.0) - boundary + self.margin).relu()
        push = (boundary - measure(far) + self.margin).relu()
        total, count = sum_by_anchor(pull + push, t, len(z))
        if self.count != "all":
            active = pull.sign() + push.sign() if self.count == "terms" else (pull + push).sign()
            count, _ = sum_by_anchor(active.detach(), t, len(z))
        each = normalise_by_count(total, count)
        return each + self.nu * boundaries.sum() if self.nu else each
