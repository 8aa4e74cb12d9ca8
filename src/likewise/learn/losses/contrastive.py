from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss, Miner
from likewise.core.similarity import (
    MIN_SQUARED_DISTANCE,
    distance,
    mean_over,
    normalise_by_count,
    sum_by_anchor,
    triplet_similarities,
    weighted_mean,
    with_known_gradient,
)
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import by_rows, triplets
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName, check_margins
from likewise.learn.miners.random import Random


class Contrastive(Loss):
    """Pulls positives together and pushes negatives beyond a margin.

    Paper: Hadsell et al., Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 1.
    Formula: l_i = [d_ip - pull_margin]+ + [margin - d_in]+
    Differs: with a miner of triplets, the paper's form: one p and one n per anchor. With all pairs (`miner=None`) or a miner
        of pairs, the pull is the mean over the positives and the push is the mean over the negatives within the margin, so that
        the push does not shrink as the batch grows.
    Graded: every pair is pulled with the weight r and pushed with 1 - r, and both means are weighted; the threshold of the
        relevance is for the miner. Judged triplets replace the miner.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        margin: negatives nearer than this are pushed away. Paper: 1.
        pull_margin: positives nearer than this are not pulled. Paper: 0.
        miner: miner of the pairs; None: all pairs.
        space: space of the distances. Hyperbolic distances are 0 to 4, and 2.7 corresponds to a Euclidean 1; "hyperbolic" changes
            the strength of pull and push, not the order of neighbours, so miners and evaluation use the cosine. See
            `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs", "triplets")
    graded = True

    def __init__(
        self, margin: float = 1.0, pull_margin: NotNegative = 0.0, miner: Miner | None = None,
        space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        check_margins("Contrastive", pull_margin, margin, SPACES_BY_NAME[space].furthest)
        self.margin = margin
        self.pull_margin = pull_margin
        self.miner = miner
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        margin = self.margin / SPACES_BY_NAME[self.space].unit
        judged = self.relevance is not None and "pairs" not in self.relevance.gives
        if not judged and (self.miner is None or self.miner.yields == "pairs"):
            return by_rows(self._rows, z, y, ref, miner=self.miner, margin=margin, relevance=self.relevance)
        t = triplets(z, y, ref, self.miner or Random(), margin, self.relevance)
        near, far = triplet_similarities(z, ref, t)
        measure = SPACES_BY_NAME[self.space].distance
        pull = measure(near).where(t.pull, 0.0)
        value = (pull - self.pull_margin).relu() + (self.margin - measure(far)).relu()
        return normalise_by_count(*sum_by_anchor(value, t, len(z)))

    def _rows(self, sim: Float[Tensor, "b R"], pairs: Pairs) -> Float[Tensor, "b"]:
        if pairs.value is not None:
            return _graded(sim, pairs, self.margin, self.pull_margin, SPACES_BY_NAME[self.space].distance)
        if self.space != "cosine":
            return _pull_and_push(sim, pairs, self.margin, self.pull_margin, SPACES_BY_NAME[self.space].distance)
        return with_known_gradient(_pull_and_push, _fast, sim, pairs, self.margin, self.pull_margin)


def _pull_and_push(
    sim: Tensor, pairs: Pairs, margin: float, pull_margin: float, measure: Callable = distance
) -> Tensor:
    """Return the mean over the positives plus the mean over the negatives within the margin."""
    d = measure(sim)
    near = pairs.neg & (d.detach() < margin)
    return mean_over((d - pull_margin).relu(), pairs.pos) + mean_over(margin - d, near)


def _graded(sim: Tensor, pairs: Pairs, margin: float, pull_margin: float, measure: Callable) -> Tensor:
    """Return `_pull_and_push` with every pair in both means, weighted by its relevance and by the rest to 1."""
    assert pairs.value is not None
    d, r, known = measure(sim), pairs.value.to(sim), (pairs.pos | pairs.neg).to(sim)
    near = known * (d.detach() < margin)
    return weighted_mean((d - pull_margin).relu(), known * r) + weighted_mean(margin - d, near * (1 - r))


def _fast(sim: Tensor, pairs: Pairs, margin: float, pull_margin: float) -> tuple[Tensor, Tensor]:
    """Return the result of `_pull_and_push` and its gradient, without masks, which is several times faster on a CPU."""
    d = distance(sim)
    pos = pairs.pos.to(d)
    pull = (d - pull_margin).clamp_min_(0).mul_(pos)
    push = (margin - d).clamp_min_(0).mul_(pairs.neg.to(d))
    many, near = pos.sum(1, keepdim=True).clamp_min_(1), push.sign()
    few = near.sum(1, keepdim=True).clamp_min_(1)
    each = pull.sum(1) / many[:, 0] + push.sum(1) / few[:, 0]
    # The derivative of d by the similarity is -1 / d, and 0 where two samples coincide, as in `distance`.
    slope = near.div_(few).sub_(pull.sign_().div_(many)).div_(d)
    return each, slope.mul_(d.sub_(MIN_SQUARED_DISTANCE**0.5).sign_())
