from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss, Relevance, TripletMiner
from likewise.core.similarity import (
    at_least_float32,
    draw_columns,
    full_precision,
    normalise_by_count,
    sum_by_anchor,
    triplet_similarities,
)
from likewise.core.types import Ref, Tuples
from likewise.learn.losses._blockwise import triplets
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName
from likewise.learn.miners.distance_weighted import DistanceWeighted


class Quadruplet(Loss):
    """Keeps a positive pair nearer than a negative, and nearer than two negatives of different classes are to each other.

    Paper: Chen et al., Beyond Triplet Loss: A Deep Quadruplet Network for Person Re-Identification, CVPR 2017;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 14 (printed with a wrong distance).
    Formula: l_a = [d_ap - d_an + margin]+ + [d_ap - d_ln + far_margin]+
    Differs: plain Euclidean distances of unit embeddings, as in the study, where the paper learns a metric. (a, p, n) come from
        the miner, l is drawn from all samples of neither a's nor n's class (the study's code ignores its class); without
        a third class, and for a switched triplet, the second bracket is 0. The mean is over all triplets, also those with the
        value 0.
    Needs: two samples of a class and three classes in the batch; use `SamplesPerClass`.

    Args:
        margin: how much further than the positive the negative must be. Paper, and the study's text: 1; its code: 0.2.
        far_margin: how much further than the positive pair two negatives must be. Paper and the study's text: 0.5; its code: 0.2.
        miner: miner of the triplets. Study: `DistanceWeighted`.
        space: space of the distances. Hyperbolic distances are 0 to 4, and 2.7 corresponds to a Euclidean 1; "hyperbolic" changes
            the strength of pull and push, not the order of neighbours, so miners and evaluation use the cosine. See
            `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs",)

    def __init__(
        self, margin: NotNegative = 1.0, far_margin: NotNegative = 0.5, miner: TripletMiner = DistanceWeighted(),
        space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        self.margin = margin
        self.far_margin = far_margin
        self.miner = miner
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        t = triplets(z, y, ref, self.miner, self.margin / SPACES_BY_NAME[self.space].unit, self.relevance)
        near, far = triplet_similarities(z, ref, t)
        other, has = _third(y, ref, t, self.relevance)
        measure = SPACES_BY_NAME[self.space].distance
        with full_precision(z):
            others = at_least_float32(z if ref is None else ref.z)
            apart = (others.index_select(0, other) * others.index_select(0, t.n)).sum(1)
            pull = measure(near).where(t.pull, 0.0)
            first = (pull - measure(far) + self.margin).relu()
            second = (pull - measure(apart) + self.far_margin).relu()
            return normalise_by_count(*sum_by_anchor(first + second.where(has & t.pull, 0.0), t, len(z)))


def _third(
    y: Int[Tensor, "B"], ref: Ref | None, t: Tuples, relevance: Relevance | None
) -> tuple[Int[Tensor, "T"], Bool[Tensor, "T"]]:
    """Draw, for every triplet, a sample of a third class; return its reference row, and whether there is one.

    With a relevance: a sample that is a negative of the anchor and of the negative.
    """
    labels = y if ref is None else ref.y
    if relevance is None:
        free = (labels != y[t.a][:, None]) & (labels != labels[t.n][:, None])
    else:
        free = relevance.pairs(y[t.a], labels).neg & relevance.pairs(labels[t.n], labels).neg
    return draw_columns(free if ref is None or ref.used is None else free & ref.used)
