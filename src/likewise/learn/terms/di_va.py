from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from likewise.core.argument_checks import Count, NotNegative, Positive
from likewise.core.contracts import Loss, Miner, Term
from likewise.core.distributed.collectives import gathered
from likewise.core.similarity import at_least_float32, draw_columns, full_precision
from likewise.core.types import Batch, LikewiseError, Output, Pairs, Tuples
from likewise.learn.miners.distance_weighted import DistanceWeighted
from likewise.learn.ring_buffer import remember
from likewise.learn.terms.mic import Decorrelation
from likewise.models.teacher import Teacher

TASK_COUNT = 4
"""Slices of the embedding: class-discriminative, self-supervised, class-shared and intra-class, in this order."""


class DiVA(Term):
    """Four tasks on four slices of the embedding: of classes, single images, all classes and inside classes; decorrelated.

    Paper: Milbich et al., DiVA: Diverse Visual Feature Aggregation for Deep Metric Learning, ECCV 2020.
    Formula: L = L_1(e_1, y) + alpha (N(e_2) + L_3(e_3, y') + L_4(e_4, triplets of one class)) + rho sum_(k=2..4) C(e_k, e_1);
        e_1 .. e_4 unit slices, L_k copies of the training loss, y' the labels of the batch in random order,
        C as in `Decorrelation`; N(q) = -log( e^(q k / T) / (e^(q k / T) + sum_m e^(w_m q m / T)) ), k the slice of another view
        by a moving average of the network, m the latest k, w_m = 1 / density(|q - m|), 0 beyond `upper`, sum_m w_m = 1
    Differs: follows the authors' code with its correction `--diva_fixed`. There y' only chooses the triplets, here it also
        chooses the boundary of the margin loss. The memory starts empty, not with keys of the untrained network, and the
        momentum is lower in the first steps (see `Teacher`). All slices count equally in evaluation; the authors report the
        best of several weightings.
    Needs: a head with four slices, `Slices(k=4)`; a loss of triplets, `Margin` or `Triplet`; `--loss-weight 0`, as this term has
        the loss of the classes too; `--views 2` with views=2, which costs two forward passes more.

    Args:
        make_loss: dim -> a new copy of the training loss; the run fills it in.
        embedder: the network in training; the run fills it in.
        alpha: weight of the three further tasks. Authors' code: 0.3 for CUB200, 0.15 for Cars196, 0.2 for SOP.
        rho: weight of the decorrelation. Authors' code: 1500 for CUB200, 100 for Cars196, 150 for SOP.
        temperature: T. Authors' code: 0.01.
        memory: number of keys m. Authors' code: 30 batches of 112; 70 for SOP.
        momentum: momentum of the moving average of the network. Authors' code: 0.9.
        upper: distance beyond which a key has the weight 0. Authors' code: 1.4.
        hidden: width of the hidden layer of the regressors. Authors' code: 512.
        views: number of views of each image in a batch; with 1, k is of the same view. Paper: 2.
        weight: factor of L.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    embedder: nn.Module
    keys: Tensor
    filled: Tensor
    next_row: Tensor

    def __init__(
        self, make_loss: Callable[[int], Loss], embedder: nn.Module, alpha: NotNegative = 0.3,
        rho: NotNegative = 1500.0, temperature: Positive = 0.01, memory: Count = 3360, momentum: float = 0.9, upper: float = 1.4,
        hidden: int = 512, views: Count = 1, weight: float = 1.0, weighted: bool = False,
    ):  # fmt: skip
        super().__init__()
        head: Any = embedder.head
        if getattr(head, "k", None) != TASK_COUNT:
            raise LikewiseError(
                f"DiVA: the network must have a head with {TASK_COUNT} slices, got {type(head).__name__} with "
                f"k={getattr(head, 'k', None)}; train with --head 'Slices(k={TASK_COUNT})'"
            )
        self.make_loss = make_loss
        self.hold(embedder=embedder)
        self.alpha = alpha
        self.rho = rho
        self.temperature = temperature
        self.memory = memory
        self.momentum = momentum
        self.upper = upper
        self.hidden = hidden
        self.views = views
        self.weight = weight
        self.weighted = weighted
        dim = head.dim // TASK_COUNT
        classes, shared, inside = (with_triplets(make_loss(dim)) for _ in range(3))
        vars(inside)["miner"] = SameClass()
        self.losses = nn.ModuleList([classes, shared, inside])
        self.decorrelations = nn.ModuleList(Decorrelation(dim, dim, hidden) for _ in range(TASK_COUNT - 1))
        self.density = DistanceWeighted(upper=upper)
        self.teacher = Teacher(embedder, momentum)
        self.pending: Tensor | None = None  # keys of this step, for `after_step`
        self.register_buffer("keys", torch.zeros(memory, dim))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self.register_buffer("next_row", torch.zeros((), dtype=torch.int64))

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        size = len(batch.y) // self.views
        if size * self.views != len(batch.y):
            raise LikewiseError(
                f"DiVA: with views={self.views} a batch must have every image {self.views} times, got {len(batch.y)} samples; "
                f"train with --views {self.views}"
            )
        assert out.nodes is not None
        y = batch.y[:size]
        classes, single, shared, inside = at_least_float32(out.nodes[:size]).unbind(1)
        keys = self._keys(batch)[-size:]
        self.pending = keys if self.training else None
        further = self.contrast(single, keys)
        further = further + self.losses[1](shared, y[torch.randperm(size, device=y.device)])
        further = further + self.losses[2](inside, y)
        apart = sum(g(e, classes) for g, e in zip(self.decorrelations, (single, shared, inside), strict=True))
        each = self.losses[0](classes, y) + self.alpha * further + self.rho * apart
        return each.repeat(self.views)

    def _keys(self, batch: Batch) -> Float[Tensor, "B d"]:
        """Return the second slice of the embeddings of all views by the moving average of the network."""
        with torch.no_grad():
            nodes = self.teacher(batch.x).nodes
            assert nodes is not None
            return gathered(at_least_float32(nodes[:, 1]), len(batch.y))

    def contrast(self, query: Float[Tensor, "n d"], key: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """Return N: how badly the queries find their own keys among the keys in the memory."""
        with full_precision(query):
            known = torch.arange(self.memory, device=query.device) < self.filled
            near = (query * key).sum(1, keepdim=True)
            sim = query @ self.keys.to(query).T
            far = (self.key_weights(sim, known) * sim).masked_fill(~known, -torch.inf)
            return torch.cat([near, far], 1).div(self.temperature).logsumexp(1) - near[:, 0] / self.temperature

    @torch.no_grad()
    def key_weights(self, sim: Float[Tensor, "n M"], known: Bool[Tensor, "M"]) -> Float[Tensor, "n M"]:
        """Return the weight w of every key for every query; a query with no key within `upper` gives all of them 0."""
        used = known & (2 - 2 * sim <= self.upper**2)
        weight = self.density.log_weight(sim, self.keys.shape[1]).masked_fill(~used, -torch.inf)
        weight = (weight - weight.amax(1, keepdim=True).clamp_min(torch.finfo(sim.dtype).min)).exp2()
        return weight / weight.sum(1, keepdim=True).clamp_min(torch.finfo(sim.dtype).tiny)

    def after_step(self, step: int) -> list[nn.Parameter]:
        if self.pending is not None:
            every = torch.ones(len(self.pending), dtype=torch.bool, device=self.keys.device)
            remember(self.next_row, self.filled, every, (self.keys, self.pending))
        self.pending = None
        self.teacher.update(self.embedder)
        losses: list[Any] = list(self.losses)
        return [moved for loss in losses for moved in loss.after_step(step) or ()]


class SameClass(Miner):
    """As many triplets as anchors, each of three random samples of one random class, which may coincide."""

    whole = True

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None) -> Tuples:
        same = ~pairs.neg  # the anchor itself included
        share = 1 / same.sum(1).to(sim.dtype)  # classes are equally likely, not samples
        a, _ = draw_columns(share.expand(len(sim), -1).contiguous())
        p, n = (draw_columns(same[a])[0] for _ in range(2))
        every = torch.ones_like(a, dtype=torch.bool)
        return Tuples(a, p, n, every, every)


def with_triplets(loss: Loss) -> Loss:
    """Return the loss; raise unless its miner yields triplets."""
    miner: Any = getattr(loss, "miner", None)
    if miner is None or miner.yields != "triplets":
        raise LikewiseError(
            f"DiVA: the loss must be one of triplets, got {type(loss).__name__}; use Margin() or Triplet()"
        )
    return loss
