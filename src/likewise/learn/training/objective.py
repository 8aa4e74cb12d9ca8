"""The training objective: loss_weight * mean_i(w_i loss_i) + sum over terms of weight_t * mean_i(v_ti term_ti)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.contracts import Confidence, Loss, Term
from likewise.core.types import Batch, Output, PeerView, Ref, SampleWeights


@dataclass(frozen=True, eq=False)
class Objective:
    """The value that training minimises: the loss with sample weights, plus the terms.

    Args:
        losses: one for each network; several if the confidence trains several networks.
        confidence: computes the sample weights; None: all are 1.
        loss_weight: factor of the loss; every term has its own `weight`.
    """

    losses: list[Loss]
    confidence: Confidence | None = None
    terms: list[Term] = field(default_factory=list)
    loss_weight: float = 1.0

    def __call__(
        self, outs: list[Output], batch: Batch, weight: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, ""], list[SampleWeights], list[Float[Tensor, "B"]]]:
        """Return the value to minimise, summed over the networks; the sample weights; the unweighted losses of each network.

        Args:
            outs: output of each network for the batch.
            batch: labels are class numbers; rows are positions among the training samples.
            weight: sample weights of the data set.
        """
        ids = self.ids(batch)
        each = [out.z if loss.input == "unit" else out.e for out, loss in zip(outs, self.losses, strict=True)]
        weights, known_losses = self.sample_weights(outs, each, batch, ids)
        value: Any = 0.0
        losses = []
        for place, out in enumerate(outs):
            confidence_weights = weights[place] if weights else None
            loss_values = known_losses[place]
            if loss_values is None:
                loss_values = self.losses[place](each[place], ids, partners(each[place], ids, confidence_weights))
            losses.append(loss_values.detach())
            value = value + self.loss_weight * weighted_mean(loss_values, weight, confidence_weights)
            for term in self.terms:
                ones = torch.ones_like(weight)
                value = value + term.weight * weighted_mean(
                    term(out, batch._replace(y=ids)), ones, confidence_weights if term.weighted else None
                )
        return value, weights, losses

    def ids(self, batch: Batch) -> Int[Tensor, "B"]:
        """Return what losses get as labels: classes, or positions of training samples if their relevance is between samples."""
        relevance = self.losses[0].relevance
        return batch.row if relevance is not None and relevance.by == "sample" else batch.y

    def sample_weights(
        self, outs: list[Output], each: list[Tensor], batch: Batch, ids: Int[Tensor, "B"]
    ) -> tuple[list[SampleWeights], list[Float[Tensor, "B"] | None]]:
        """Return the sample weights of each network, and the unweighted losses if the confidence needed them.

        A loss is None if it must be computed (again), because the confidence excludes samples as partners.
        """
        nothing: list[Tensor | None] = [None] * len(outs)
        if self.confidence is None:
            return [], nothing
        seen = [out.z.detach() for out in outs]
        if len(outs) == 1 and not self.confidence.needs_loss:
            return [self.confidence(seen[0], batch.y, batch.row, None)], nothing
        known_losses = [loss(z, ids) for loss, z in zip(self.losses, each, strict=True)]
        if len(outs) == 1:
            weights = [self.confidence(seen[0], batch.y, batch.row, known_losses[0].detach())]
        else:
            every = zip(self.losses, seen, each, known_losses, strict=True)
            views = [PeerView(z, values.detach(), loss.predict(own.detach())) for loss, z, own, values in every]
            weights = self.confidence.exchange(views, batch.y, batch.row)
        return weights, [None if t.partner is not None else n for t, n in zip(weights, known_losses, strict=True)]


def partners(z: Float[Tensor, "B D"], ids: Int[Tensor, "B"], confidence_weights: SampleWeights | None) -> Ref | None:
    """Return the batch as a `Ref`, masking samples that the confidence excludes as partners; None if it excludes none."""
    if confidence_weights is None or confidence_weights.partner is None:
        return None
    return Ref(z, ids, torch.arange(len(ids), device=ids.device), used=confidence_weights.partner)


def weighted_mean(
    loss_values: Float[Tensor, "B"], weight: Float[Tensor, "B"], confidence_weights: SampleWeights | None
) -> Float[Tensor, ""]:
    """Return the weighted mean of the losses; a sample of weight 0 adds 0, even if its loss is NaN.

    Args:
        weight: sample weights of the data set.
        confidence_weights: sample weights of the confidence; None without a confidence.
    """
    total = weight if confidence_weights is None else weight * confidence_weights.w
    loss_values = (total * loss_values).where(total > 0, 0.0)
    if confidence_weights is None:
        return loss_values.mean()
    if confidence_weights.mean_over == "kept":
        return loss_values.sum() / (confidence_weights.w > 0).sum().clamp_min(1)
    return loss_values.mean()
