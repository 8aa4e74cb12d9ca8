from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.argument_checks import Count, NotNegative
from likewise.core.class_sums import class_sums
from likewise.core.contracts import Loss
from likewise.core.durations import argument_in_steps, steps_of
from likewise.core.similarity import compare, distance, is_traced, normalise_by_count, squared_distance
from likewise.core.types import Ref
from likewise.learn.losses._class_tree import distance_within, merge_classes, spanning_tree

LARGEST_SQUARED_DISTANCE = 4.0
"""Squared distance of opposite unit vectors, the threshold of the highest level of the tree."""


class HierarchicalTriplet(Loss):
    """All triplets of the batch, with a margin that depends on where a tree of the classes joins anchor and negative (HTL).

    Paper: Ge et al., Deep Metric Learning with Hierarchical Triplet Loss, ECCV 2018.
    Formula: L = 1 / (2 |T|) sum_(a,p,n) in T [D_ap - D_an + alpha]+, T all triplets of the batch, D squared distances,
        alpha = beta + d_H(y_a, y_n) - s_(y_a); s_c the mean D of two samples of class c, d_0 the mean of s over classes,
        d(p, q) the mean D of a sample of class p and one of q; classes with d < d_l = d_0 + l (4 - d_0) / levels are in one
        node on level l = 0..levels; d_H(p, q) = d_l of the lowest level on which p and q are in one node
    Differs: implemented from readers' summaries, because the paper's text was not available. They print D without the square
        in the loss (`squared=False`) and with it in the tree; only with squares do margin and distances have the same unit.
        Nodes are joined by single linkage. s and d come from the embeddings of the training steps since the last tree,
        with augmentation, not from a pass over the training set. Before the first tree, alpha is a constant: the paper
        starts from a network that was trained with the triplet loss.
    Needs: two samples of a class in the batch, and similar classes: use `AnchorNeighbours`.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        beta: how much further apart than in the tree the classes should be. As in a re-implementation by others: 0.1.
        levels: number of levels of the tree above the classes. As in the same re-implementation: 16.
        margin: alpha before the first tree. Ours: 0.2.
        start: time of the first tree, in steps or epochs ("1e"). Ours: after one epoch.
        every: time between two trees, in steps or epochs. Ours: one epoch.
        squared: whether the distances of the loss are squared.
        largest_class: upper bound of the samples of a class in the batch; the run fills it in if its sampler has one.
        per_pass: steps in an epoch, needed if `start` or `every` is in epochs; the run fills it in.
    """

    remembers = True

    total: Tensor
    count: Tensor
    mean: Tensor
    samples: Tensor
    nodes: Tensor
    within: Tensor
    thresholds: Tensor
    begun: Tensor

    def __init__(
        self, classes: int, dim: int, beta: NotNegative = 0.1, levels: Count = 16, margin: NotNegative = 0.2,
        start: int | str = "1e", every: int | str = "1e", squared: bool = True, largest_class: Count | None = None,
        per_pass: Count | None = None,
    ):  # fmt: skip
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.beta = beta
        self.levels = levels
        self.margin = margin
        self.start = start
        self.every = every
        self.squared = squared
        self.largest_class = largest_class
        self.per_pass = per_pass
        for name in ("start", "every"):
            steps_of(str(getattr(self, name)), per_pass or 10**6, name, least=1, owner="HierarchicalTriplet")
        self.pending: tuple[Tensor, Tensor] | None = None  # embeddings and labels of this step, for `after_step`
        self.register_buffer("total", torch.zeros(classes, dim))  # sums since the last tree
        self.register_buffer("count", torch.zeros(classes))
        self.register_buffer("mean", torch.zeros(classes, dim))  # of the last tree, for classes not seen since
        self.register_buffer("samples", torch.zeros(classes))
        self.register_buffer("nodes", torch.zeros(levels + 1, classes, dtype=torch.int64))
        self.register_buffer("within", torch.zeros(classes))
        self.register_buffer("thresholds", torch.zeros(levels + 1))
        self.register_buffer("begun", torch.zeros((), dtype=torch.bool))

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        if self.training and (torch.compiler.is_compiling() or not is_traced()):
            self.pending = z.detach(), y
        sim, pairs = compare(z, y, ref)
        apart = squared_distance(sim) if self.squared else distance(sim)
        bound = None if ref is not None else self.largest_class
        column, is_one = self._positives(pairs.pos, bound)
        beyond = apart - self.margins(y, y if ref is None else ref.y).to(apart)
        violation = (apart.gather(1, column)[:, :, None] - beyond[:, None, :]).relu()
        each = violation.where(is_one[:, :, None] & pairs.neg[:, None, :], 0.0).sum((1, 2))
        positives = pairs.pos.sum(1)
        each = each if bound is None else each.masked_fill(positives >= bound, torch.nan)
        return normalise_by_count(each, positives * pairs.neg.sum(1)) / 2

    def _positives(self, pos: Bool[Tensor, "B R"], bound: int | None) -> tuple[Int[Tensor, "B K"], Bool[Tensor, "B K"]]:
        """Return the columns of the positives of every anchor, and which of these entries are positives."""
        most = pos.shape[1] if bound is None else max(1, min(bound - 1, pos.shape[1]))
        if bound is None and pos.device.type == "cpu" and not is_traced():
            most = max(1, int(pos.sum(1).max()))
        found = pos.to(torch.uint8).topk(most, dim=1)
        return found.indices, found.values > 0

    @torch.no_grad()
    def margins(self, y: Int[Tensor, "B"], other: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        """Return alpha for anchors and negatives of these classes."""
        # Levels before they are joined.
        level = (self.nodes[:, y][:, :, None] != self.nodes[:, other][:, None, :]).sum(0)
        alpha = self.beta + self.thresholds[level.clamp_max(self.levels)] - self.within[y][:, None]
        return alpha.where(self.begun, self.margin)

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        if self.pending is not None:
            z, y = self.pending
            self.total += class_sums(z.to(self.total), y, self.classes)
            self.count += torch.zeros_like(self.count).index_add_(0, y, torch.ones_like(y, dtype=self.count.dtype))
        self.pending = None
        since = step - argument_in_steps(self, "start")
        if since >= 0 and since % argument_in_steps(self, "every") == 0:
            self.build_tree()

    @torch.no_grad()
    def build_tree(self) -> None:
        """Build the tree from the embeddings since the last one, and start to collect new ones."""
        seen = self.count > 0
        mean = self.mean.where(~seen[:, None], self.total / self.count.clamp_min(1)[:, None])
        samples = self.samples.where(~seen, self.count)
        within = distance_within(mean, samples)
        if not (mean.isfinite().all() and (samples > 1).any()):
            return  # training diverged, which the training loop reports; or there is no pair of a class
        lowest = within.nanmean()
        share = torch.arange(self.levels + 1, device=mean.device) / self.levels
        self.thresholds.copy_(lowest + share * (LARGEST_SQUARED_DISTANCE - lowest))
        self.within.copy_(within.nan_to_num(nan=float(lowest)))
        self.nodes.copy_(merge_classes(spanning_tree(mean), self.thresholds))
        self.mean.copy_(mean)
        self.samples.copy_(samples)
        self.begun.fill_(True)
        self.total.zero_()
        self.count.zero_()

    def observe_state(self) -> dict[str, Tensor]:
        return {"distance_within": self.thresholds[0].detach().clone()}
