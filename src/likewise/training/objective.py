"""The one objective: loss_weight * mean_i(w_i loss_i) + sum over terms of weight_t * mean_i(v_ti term_ti)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.contracts import Confidence, Loss, Term
from likewise.types import Batch, Output, PeerView, Ref, SampleWeights


@dataclass(frozen=True, eq=False)
class Objective:
    """A loss for every network in training, how far labels are believed, and what is added beside the loss.

    Args:
        losses: one for each network; more than one where the confidence wants several.
        loss_weight: of the loss beside the terms.
    """

    losses: list[Loss]
    confidence: Confidence | None = None
    terms: list[Term] = field(default_factory=list)
    loss_weight: float = 1.0

    def __call__(
        self, outs: list[Output], batch: Batch, weight: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, ""], list[SampleWeights], list[Float[Tensor, "B"]]]:
        """The number to minimise, summed over the networks; how far each believed the labels; each one's unweighted losses.

        Args:
            outs: what each network makes of the batch.
            batch: labels are class numbers, rows count the training samples.
            weight: of every sample, as the data says.
        """
        each = [out.z if loss.input == "unit" else out.e for out, loss in zip(outs, self.losses, strict=True)]
        trusts, numbers = self.trust(outs, each, batch)
        value: Any = 0.0
        losses = []
        for place, out in enumerate(outs):
            trust = trusts[place] if trusts else None
            number = numbers[place]
            if number is None:
                number = self.losses[place](each[place], batch.y, partners(each[place], batch, trust))
            losses.append(number.detach())
            value = value + self.loss_weight * mean(number, weight, trust)
            for term in self.terms:
                ones = torch.ones_like(weight)
                value = value + term.weight * mean(term(out, batch), ones, trust if term.weighted else None)
        return value, trusts, losses

    def trust(
        self, outs: list[Output], each: list[Tensor], batch: Batch
    ) -> tuple[list[SampleWeights], list[Float[Tensor, "B"] | None]]:
        """What the confidence says, and the unweighted losses where it wanted to see them."""
        nothing: list[Tensor | None] = [None] * len(outs)
        if self.confidence is None:
            return [], nothing
        seen = [out.z.detach() for out in outs]
        if len(outs) == 1 and not self.confidence.needs_loss:
            return [self.confidence(seen[0], batch.y, batch.row, None)], nothing
        numbers = [loss(z, batch.y) for loss, z in zip(self.losses, each, strict=True)]
        if len(outs) == 1:
            trusts = [self.confidence(seen[0], batch.y, batch.row, numbers[0].detach())]
        else:
            every = zip(self.losses, seen, numbers, strict=True)
            views = [PeerView(z, number.detach(), loss.predict(z)) for loss, z, number in every]
            trusts = self.confidence.exchange(views, batch.y, batch.row)
        return trusts, [None if t.partner is not None else n for t, n in zip(trusts, numbers, strict=True)]


def partners(z: Float[Tensor, "B D"], batch: Batch, trust: SampleWeights | None) -> Ref | None:
    """The batch as a `Ref`, masking samples that the confidence excludes as partners; None if it excludes none."""
    if trust is None or trust.partner is None:
        return None
    return Ref(z, batch.y, torch.arange(len(batch.y), device=batch.y.device), used=trust.partner)


def mean(number: Float[Tensor, "B"], weight: Float[Tensor, "B"], trust: SampleWeights | None) -> Float[Tensor, ""]:
    """Weighted mean; a sample that is not believed adds nothing, whatever its number."""
    if trust is None:
        return (weight * number).mean()
    number = (weight * trust.w * number).where(trust.w > 0, 0.0)
    if trust.mean_over == "kept":
        return number.sum() / (trust.w > 0).sum().clamp_min(1)
    return number.mean()
