from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.argument_checks import Count, NotNegative, Positive, ShareBelowOne
from likewise.core.contracts import Loss, TripletMiner
from likewise.core.similarity import (
    EMPTY_SUM_THRESHOLD,
    compare,
    cosine,
    exact_softplus,
    full_precision,
    is_traced,
    log1p_sum_exp,
    log_sum_exp,
    mean_over,
    normalise_by_count,
    sum_by_anchor,
)
from likewise.core.types import LikewiseError, Pairs, Ref, Tuples
from likewise.learn.losses._hyperbolic import SpaceName, neg_hyperbolic
from likewise.learn.miners.semi_hard import SemiHard

SPACE_DEFAULTS = {"cosine": (cosine, 0.5), "hyperbolic": (neg_hyperbolic, -2.7)}
"""Name of a space -> (similarity, default of gamma). A cosine of 0.5 is a hyperbolic distance of 2.7."""


class Margins(NamedTuple):
    """Similarities minus the margins of their pairs: above 0 is near enough for a positive, and too near for a negative."""

    pos: Bool[Tensor, "B R"]  # other images of the label
    neg: Bool[Tensor, "B R"]  # images of other labels
    views: Bool[Tensor, "B R"]  # other views of the image
    near: Float[Tensor, "B R"]  # s_ij - P_i, valid where `pos`
    far: Float[Tensor, "B R"]  # s_ij - N_ij, valid where `neg`
    held: Float[Tensor, "B R"]  # s_ij - A_i, valid where `views`


class AdaptiveHierarchical(Loss):
    """Pair loss with margins that follow the similarity of classes, and a pull between views of the same image.

    Paper: Yan et al., Adaptive Hierarchical Similarity Metric Learning With Noisy Labels, TIP 2023.
    Formula: l_i = 1/r log(1 + sum_v e^(-r (s_iv - A_i))) + 1/a log(1 + sum_p e^(-a (s_ip - P_i)))
               + 1/b log(1 + sum_n e^(b (s_in - N_in))); v other views of i, p other images of its label, n images of others;
        P_i = gamma + [S_yy], N_in = gamma - [S_yn], S_ab the mean similarity of classes a and b, [.] rescaled to 0..width;
        A_i = the smallest similarity of two images of i's label in the batch.
        form="triplet": l_i = [(s_in - N_in) - (s_ip - P_i)]+ + mean_v [(s_in - N_in) - (s_iv - A_i)]+.
        form="lifted": l_ij = 1/2 [M - s_ij + 1/b log(sum_n e^(b (s_in - N_in)) + sum_n e^(b (s_jn - N_jn)))]+^2 for a pair i, j
        of images (M = P_i) or views (M = A_i); L is the mean over such pairs
    Differs: implemented from a summary of the paper, which does not specify the following. S_ab is a moving average of batch
        means; [.] maps the smallest S of the batch to 0 and the largest to width, separately for positives and negatives;
        margins are constants to the gradient; for a label with one image in the batch, A is gamma. In hyperbolic space
        s = -distance, so gamma is below 0, and as unit embeddings lie on a sphere there, s is a function of the cosine. The
        summary has the multi-similarity form only; in the other two, each similarity of the original loss is replaced by
        its difference from its margin, on unit embeddings, and gamma cancels between images.
    Needs: two samples of a class in the batch; a few thousand classes at most, because it stores a classes x classes matrix.

    Args:
        classes: number of training classes; the run fills it in.
        alpha: a, sharpness of the pull between images of a label. As in Multi-Similarity: 2.
        beta: b, sharpness of the push. As in Multi-Similarity: 40.
        rho: r, sharpness of the pull between views. Ours: 2.
        gamma: base of the margins. None: 0.5 (paper), or -2.7 in hyperbolic space, where this is a cosine of 0.5.
        width: range of the margins. Paper: 0.2.
        momentum: momentum of the mean similarities per step. Ours: 0.9.
        views: number of views of each image in a batch: all first views, then all second ones (`--views 2`). Paper: 2.
        form: the loss that gets the margins: "multi-similarity" (the best in the paper), "triplet" or "lifted" structure.
        miner: miner of the triplets of form="triplet", among images; other forms take all pairs. Ours: `SemiHard`.
        space: "cosine", or "hyperbolic" (paper): the Poincare ball, by the exponential map at 0.
    """

    means: Tensor

    def __init__(
        self, classes: int, alpha: Positive = 2.0, beta: Positive = 40.0, rho: Positive = 2.0, gamma: float | None = None,
        width: NotNegative = 0.2, momentum: ShareBelowOne = 0.9, views: Count = 1,
        form: Literal["multi-similarity", "triplet", "lifted"] = "multi-similarity", miner: TripletMiner = SemiHard(),
        space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        self.classes = classes
        self.alpha = alpha
        self.beta = beta
        self.rho = rho
        self.gamma = gamma
        self.width = width
        self.momentum = momentum
        self.views = views
        self.space = space
        self.form = form
        self.miner = miner
        self.pending: tuple[Tensor, Tensor] | None = None  # labels and mean similarities of this step
        self.register_buffer("means", torch.full((classes, classes), torch.inf))  # infinity: no such pair so far

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        m = self._margins(z, y, ref)
        if self.form == "lifted":
            return self._lifted(m, ref is None)
        if self.form == "triplet":
            with torch.no_grad():
                sim = compare(z, y, ref)[0]
                t = self.miner(sim, Pairs(m.pos, m.neg), z.shape[1], self.width)
            assert isinstance(t, Tuples)
            return self._triplets(m, t)
        pull = log1p_sum_exp(m.near, m.pos, -self.alpha) / self.alpha
        push = log1p_sum_exp(m.far, m.neg, self.beta) / self.beta
        return pull + push + (log1p_sum_exp(m.held, m.views, -self.rho) / self.rho if self.views > 1 else 0)

    def _margins(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None) -> Margins:
        """Return the similarities of all pairs minus their margins; in training, also store the new class means."""
        similarity, base = SPACE_DEFAULTS[self.space]
        base = base if self.gamma is None else self.gamma
        sim, pairs = compare(z, y, ref, similarity)
        other = y if ref is None else ref.y
        views = pairs.pos & self._same_image(y, ref)
        pos, neg, still = pairs.pos & ~views, pairs.neg, sim.detach()
        means = self._means(still, y, other, pos | neg)
        if self.training and (torch.compiler.is_compiling() or not is_traced()):
            self.pending = y, means
        alike = means.gather(1, other.expand(len(y), -1))
        near, far = sim - (base + self._rescaled(alike, pos)), sim - (base - self._rescaled(alike, neg))
        least = still.masked_fill(~pos, torch.inf).amin(1)
        least = torch.where(y[:, None] == y[None, :], least[None, :], torch.inf).amin(1, keepdim=True)
        return Margins(pos, neg, views, near, far, sim - least.masked_fill(least.isinf(), base))

    def _triplets(self, m: Margins, t: Tuples) -> Float[Tensor, "B"]:
        """Return the values of form="triplet"; a view of the anchor has the negative of its triplet."""
        size, far = len(m.pos), m.far[t.a, t.n]
        each = normalise_by_count(*sum_by_anchor((far - m.near[t.a, t.p].where(t.pull, 0.0)).relu(), t, size))
        if self.views == 1:
            return each
        held = mean_over((far[:, None] - m.held[t.a]).relu(), m.views[t.a])
        return each + normalise_by_count(*sum_by_anchor(held, t, size))

    def _lifted(self, m: Margins, own: bool) -> Float[Tensor, "B"]:
        """Return the values of form="lifted". A pair counts for both of its samples.

        Args:
            own: whether the batch is compared with itself; otherwise the negatives of j are samples of the batch.
        """
        row = log_sum_exp(m.far, m.neg, self.beta)
        column = row if own else log_sum_exp(m.far.T, m.neg.T, self.beta)
        both = exact_softplus(row[:, None] - column) + column  # log(e^row + e^column)
        if not own:  # j may have no negatives although i has some
            both = both.where(column > EMPTY_SUM_THRESHOLD, row[:, None])
        hinge = (both / self.beta - m.near.where(m.pos, m.held)).masked_fill(~(m.pos | m.views), 0).relu()
        return normalise_by_count(hinge.square().sum(1) / 2, (m.pos | m.views).sum(1))

    def _same_image(self, y: Int[Tensor, "B"], ref: Ref | None) -> Bool[Tensor, "B R"]:
        """Return the mask of the reference rows that show the same image as each anchor."""
        size = len(y)
        if size % self.views:
            raise LikewiseError(
                f"AdaptiveHierarchical: with views={self.views} a batch must have every image {self.views} times, "
                f"got {size} samples; train with --views {self.views}"
            )
        image = torch.arange(size, device=y.device) % (size // self.views)
        if ref is None:
            return image[:, None] == image[None, :]
        rows = len(ref.y)
        # The last entry takes samples that are not in the reference.
        shown = torch.full((rows + 1,), -1, device=y.device)
        if ref.own is not None:
            shown = shown.index_copy(0, ref.own.where(ref.own >= 0, rows), image)
        return image[:, None] == shown[None, :rows]

    def _means(
        self, sim: Float[Tensor, "B R"], y: Int[Tensor, "B"], other: Int[Tensor, "R"], mask: Bool[Tensor, "B R"]
    ) -> Float[Tensor, "B C"]:
        """Return the mean similarity of each anchor's class to every class, updated by this batch; infinity without any pair."""
        among = (other[:, None] == torch.arange(self.classes, device=y.device)).to(sim)
        mates = (y[:, None] == y[None, :]).to(sim)
        with full_precision(sim):
            total, count = mates @ ((sim * mask) @ among), mates @ (mask.to(sim) @ among)
        # All samples of a class take one row, so that rounding is equal.
        now = (total / count).index_select(0, mates.argmax(1))
        before = self.means[y].to(sim)
        moved = torch.where(before.isinf(), now, torch.lerp(now, before, self.momentum))
        return torch.where(now.isnan(), before, moved)

    def _rescaled(self, alike: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"]) -> Float[Tensor, "B R"]:
        """Return the values rescaled so that the smallest in the mask is 0 and the largest is `width`.

        A range below 1e-4 is not stretched to the full width.
        """
        least, most = alike.masked_fill(~mask, torch.inf).amin(), alike.masked_fill(~mask, -torch.inf).amax()
        return (self.width * (alike - least) / (most - least).clamp_min(1e-4)).masked_fill(~mask, 0)

    def after_step(self, step: int) -> None:
        if self.pending is not None:
            y, means = self.pending
            self.means.index_copy_(0, y, means.to(self.means))
        self.pending = None
