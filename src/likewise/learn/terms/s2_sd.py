from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from annotated_types import MinLen
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.argument_checks import Count, CountOrZero, Positive
from likewise.core.contracts import Loss, Term
from likewise.core.similarity import at_least_float32
from likewise.core.types import Batch, Output
from likewise.learn.terms.self_distillation import kl_rows, similarities


class S2SD(Term):
    """Wider embeddings of the same feature, trained at the same time; the embedding is distilled from their similarities.

    Paper: Roth et al., S2SD: Simultaneous Similarity-based Self-Distillation for Deep Metric Learning, ICML 2021.
    Formula: l_i = 1/2 mean_m L(t_m)_i + w mean_m KL_i(t_m, z) + w_f KL_i(f, z), with
        KL_i(t, z) = T^2 KL( softmax(s^t_i / T) || softmax(s^z_i / T) ), s = cosines with the diagonal, t constant,
        t_m = unit(MLP_m(f)), L the training loss, one copy for each m
    Differs: the paper also halves the training loss, which a term cannot do: train with `loss_weight=0.5`.
        With `weighted`, which is ours, the sample weights of the confidence apply to all three summands.

    Args:
        make_loss: dim -> a new copy of the training loss; the run fills it in.
        embedder: the network in training, for the width of its feature; the run fills it in.
        dims: widths of the additional embeddings. Paper: these.
        distill: w. Paper: 50.
        distill_feature: w_f. Paper: 50; 5 on SOP.
        delay: first steps, during which w_f is 0. Paper: 1000.
        temperature: T. Paper: 1.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    uses_classes = False

    begun: Tensor

    def __init__(
        self,
        make_loss: Callable[[int], Loss],
        embedder: nn.Module,
        dims: Annotated[tuple[Count, ...], MinLen(1)] = (512, 1024, 1536, 2048),
        distill: float = 50.0,
        distill_feature: float = 50.0,
        delay: CountOrZero = 1000,
        temperature: Positive = 1.0,
        weighted: bool = False,
    ):
        super().__init__()
        self.make_loss = make_loss
        self.hold(embedder=embedder)
        self.dims = dims
        self.distill = distill
        self.distill_feature = distill_feature
        self.delay = delay
        self.temperature = temperature
        self.weighted = weighted
        width: Any = embedder.feature_dim
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(width, dim), nn.ReLU(), nn.Linear(dim, dim)) for dim in dims
        )
        self.losses = nn.ModuleList(make_loss(dim) for dim in dims)
        self.register_buffer("begun", torch.tensor(float(delay == 0)))

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        sim = similarities(out.z)
        losses, gaps = [], []
        for branch, loss in zip(self.branches, self.losses, strict=True):
            raw = at_least_float32(branch(out.f))
            t = F.normalize(raw, dim=1, eps=1e-6)
            losses.append(loss(t if loss.input == "unit" else raw, batch.y))
            gaps.append(kl_rows(similarities(t.detach()), sim, self.temperature))
        feature = F.normalize(at_least_float32(out.f.detach()), dim=1, eps=1e-6)
        near_feature = self.begun * kl_rows(similarities(feature), sim, self.temperature)
        return (
            torch.stack(losses).mean(0) / 2
            + self.distill * torch.stack(gaps).mean(0)
            + self.distill_feature * near_feature
        )

    def after_step(self, step: int) -> list[nn.Parameter]:
        self.begun.fill_(step >= self.delay)
        return [moved for loss in self.losses for moved in loss.after_step(step) or ()]  # pyright: ignore[reportCallIssue]
