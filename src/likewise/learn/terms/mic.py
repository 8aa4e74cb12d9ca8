from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.argument_checks import NotNegative, Share
from likewise.core.class_sums import class_sums
from likewise.core.contracts import Loss, Term
from likewise.core.durations import steps_of
from likewise.core.kmeans import kmeans
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import Batch, LikewiseError, Output, TrainingSetInfo

KMEANS_STEPS_LIMIT = 20
"""Iterations of k-means at most, as in the authors' code."""


class MIC(Term):
    """A second embedding that learns what images of different classes share, and is kept apart from the first one.

    Paper: Roth et al., MIC: Mining Interclass Characteristics for Improved Deep Metric Learning, ICCV 2019.
    Formula: J = L(e, c) + rho C(e, z), e = unit(A f), f the pooled feature, z the embedding; L a copy of the training loss, c the
        cluster of an image, C as in `Decorrelation`. First clusters: k-means of f minus the mean f of its class; later
        ones: k-means of e, every few epochs
    Differs: clusters and classes are learned from the same batches; in the authors' code they have steps of their own, those
        of clusters with probability 0.8 (0.5 on SOP). The code takes the first clusters from maps of an early stage of the
        network. Later clusters are of the latest e of training, with augmentation, and an image that was not drawn keeps its
        cluster; the code embeds the whole training set. An image gets a random cluster with probability `random_share`; in the
        code an image of another cluster is drawn.
    Needs: a loss that compares samples by labels; e is not part of the embedding that is evaluated.

    Args:
        make_loss: (dim, classes) -> a new copy of the training loss; the run fills it in.
        embedder: the network in training; the run fills it in.
        labels: classes of the training samples; the run fills it in.
        dim: width of e, that of the embedding; the run fills it in.
        clusters: number of clusters. Authors' code: 30 for CUB200, 150 for Cars196 and In-Shop, 50 for SOP.
        every: time between two clusterings, in steps or epochs ("4e"). Authors' code: 4 epochs.
        rho: weight of the decorrelation. Authors' code: 2500 for CUB200, 500 for Cars196, 250 for SOP and In-Shop.
        random_share: probability of a random cluster, against overfitting to bad clusters. Authors' code: 0.2.
        deviation: whether the first features are also divided by their deviation in the class, as the paper describes; the
            code only subtracts the mean.
        hidden: width of the hidden layer of the regressor. Authors' code: 512.
        per_pass: steps in an epoch; the run fills it in.
        seed: seed of the clusterings; the run fills it in.
        weight: factor of J.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    embedder: nn.Module
    cluster: Tensor
    latest: Tensor
    seen: Tensor
    regrouped: Tensor

    def __init__(
        self, make_loss: Callable[..., Loss], embedder: nn.Module, labels: Int[np.ndarray, "N"], dim: int, per_pass: int,
        clusters: Annotated[int, Ge(2)] = 8, every: int | str = "4e", rho: NotNegative = 2500.0, random_share: Share = 0.2,
        deviation: bool = False, hidden: int = 512, seed: int = 0, weight: float = 1.0, weighted: bool = False,
    ):  # fmt: skip
        super().__init__()
        if clusters > len(labels):
            raise LikewiseError(f"MIC: clusters must be at most the {len(labels)} training samples, got {clusters}")
        self.make_loss = make_loss
        self.hold(embedder=embedder)
        self.labels = labels
        self.dim = dim
        self.per_pass = per_pass
        self.clusters = clusters
        self.every = every
        self.rho = rho
        self.random_share = random_share
        self.deviation = deviation
        self.hidden = hidden
        self.seed = seed
        self.weight = weight
        self.weighted = weighted
        self.period = steps_of(str(every), per_pass, "every", 1, owner="MIC")
        features: Any = embedder.feature_dim
        self.encoder = nn.Linear(features, dim)
        self.loss = make_loss(dim, classes=clusters)
        self.decorrelation = Decorrelation(dim, dim, hidden)
        self.pending: tuple[Tensor, Tensor] | None = None  # second embeddings and rows of this step, for `after_step`
        self.register_buffer("cluster", torch.full((len(labels),), -1))  # -1: not known so far
        self.register_buffer("latest", torch.zeros(len(labels), dim))
        self.register_buffer("seen", torch.zeros(len(labels), dtype=torch.bool))
        self.register_buffer("regrouped", torch.zeros(()))  # share of the images whose cluster has changed

    @torch.no_grad()
    def prepare(self, given: TrainingSetInfo) -> None:
        """Cluster the features of the network at the start, without what is particular to their class."""
        if (self.cluster >= 0).all():
            return
        was = self.embedder.training
        self.embedder.eval()
        found = [(place, self.embedder(x).f) for x, place in given.pictures(None)]
        self.embedder.train(was)
        f = torch.zeros(len(self.labels), found[0][1].shape[1], device=self.cluster.device)
        for place, some in found:
            f[place] = some.to(f)
        y = torch.as_tensor(given.labels, device=f.device)
        rest = without_class(f, y, self.deviation)
        self.cluster.copy_(kmeans(rest, self.clusters, iterations=KMEANS_STEPS_LIMIT, seed=self.seed).label)

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        second = F.normalize(at_least_float32(self.encoder(out.f)), dim=1, eps=1e-6)
        if self.training:
            self.pending = second.detach(), batch.row
        c = self.cluster[batch.row]
        other = torch.randint(self.clusters, c.shape, device=c.device)
        c = torch.where(torch.rand(c.shape, device=c.device) < self.random_share, other, c)
        return self.loss(second, c) + self.rho * self.decorrelation(second, out.z)

    def after_step(self, step: int) -> list[nn.Parameter]:
        if self.pending is not None:
            second, row = self.pending
            self.latest.index_copy_(0, row, second)
            self.seen.index_fill_(0, row, True)
        self.pending = None
        if step % self.period == 0:
            self.regroup()
        return list(self.loss.after_step(step) or ())

    @torch.no_grad()
    def regroup(self) -> None:
        """Cluster the latest second embeddings of the images that were drawn."""
        rows = self.seen.nonzero()[:, 0]
        points = self.latest[rows]
        if len(rows) < self.clusters or not points.isfinite().all():
            return  # too few images so far; or training diverged, which the training loop reports
        new = kmeans(points, self.clusters, iterations=KMEANS_STEPS_LIMIT, seed=self.seed).label
        self.regrouped.copy_((new != self.cluster[rows]).float().mean())
        self.cluster.index_copy_(0, rows, new)

    def observe_state(self) -> dict[str, Tensor]:
        return {"images_regrouped": self.regrouped.detach().clone()}


def without_class(f: Float[Tensor, "N F"], y: Int[Tensor, "N"], deviation: bool) -> Float[Tensor, "N F"]:
    """Return features minus the mean of their class, and divided by the deviation in their class if `deviation`."""
    classes = int(y.max()) + 1
    count = torch.bincount(y, minlength=classes)[:, None].clamp_min(1)
    rest = f - (class_sums(f, y, classes) / count)[y]
    if not deviation:
        return rest
    spread = (class_sums(rest.square(), y, classes) / count).sqrt()[y]
    return (rest / spread.clamp_min(1e-12)).where(spread > 0, 0.0)


def reverse_gradient(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x, with minus its gradient in the backward pass."""
    return 2 * x.detach() - x


class Decorrelation(nn.Module):
    """Minus the squared products of a target and its prediction from a source; the regressor lowers it, the embeddings raise it.

    Paper: Roth et al., MIC: Mining Interclass Characteristics for Improved Deep Metric Learning, ICCV 2019; Milbich et al.,
        DiVA: Diverse Visual Feature Aggregation for Deep Metric Learning, ECCV 2020.
    Formula: l_i = -1/d sum_d (t_id g(s_i)_d)^2, g a network of two layers with output of unit length; s, t of unit length with
        their gradients reversed

    Args:
        source: width of s.
        target: width of t.
        hidden: width of the hidden layer of g. Authors' code: 512.
    """

    def __init__(self, source: int, target: int, hidden: int = 512):
        super().__init__()
        self.regressor = nn.Sequential(nn.Linear(source, hidden), nn.ReLU(), nn.Linear(hidden, target))

    def forward(self, source: Float[Tensor, "B s"], target: Float[Tensor, "B t"]) -> Float[Tensor, "B"]:
        with full_precision(source):
            s, t = (F.normalize(reverse_gradient(at_least_float32(x)), dim=1, eps=1e-6) for x in (source, target))
            return -(t * F.normalize(self.regressor(s), dim=1, eps=1e-6)).square().mean(1)
