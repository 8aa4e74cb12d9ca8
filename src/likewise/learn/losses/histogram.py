from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.contracts import Loss
from likewise.core.similarity import at_least_float32, cosine, full_precision, positive_negative_masks
from likewise.core.types import LikewiseError, Ref
from likewise.learn.losses._blockwise import blocks, split_rows
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, check_space
from likewise.learn.losses._soft_histograms import soft_histograms


class Histogram(Loss):
    """Probability that a random negative pair is more similar than a random positive pair, by histograms.

    Paper: Ustinova & Lempitsky, Learning Deep Embeddings with Histogram Loss, NIPS 2016, eq. 2 to 5;
        as in Roth et al., Revisiting Training Strategies, ICML 2020, eq. 7 to 9 (one misprint in eq. 7).
    Formula: L = sum_r h-_r sum_{q <= r} h+_q, with h+ and h- the histograms of the similarities of positive and of negative
        pairs, each summing to 1
    Differs: the paper defines one value per batch, the mean over negative pairs of the share of positive pairs below them.
        The value of a sample is the term of its own negatives, B / |S-| sum_n F+(s_in), so that mean and gradient are the
        paper's; F+ is computed over the whole batch. 0 for a batch without positive or without negative pairs.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        nodes: nodes of the histograms from -1 to 1, both ends included. Roth et al.: 65; 11 for SOP.
        space: space of the similarities. In "hyperbolic", nodes are from its smallest similarity to 1; the order of neighbours is
            the same, and evaluation uses the cosine. See `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs",)

    def __init__(self, nodes: int = 65, space: Literal["cosine", "hyperbolic"] = "cosine"):
        super().__init__()
        check_space(space, "Histogram")
        if nodes < 2:
            raise LikewiseError(f"Histogram: nodes must be 2 or more, got {nodes}; Roth et al. take 65")
        self.nodes = nodes
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            z = at_least_float32(z)
            sim = cosine(z, z if ref is None else at_least_float32(ref.z))
            pos, neg = self._count(sim, y, ref)
            below = pos.sum(0).cumsum(0)
            below = below / below[-1].detach().clamp_min(0.5)  # an integer up to rounding
            return neg @ below * (len(z) / neg.detach().sum().clamp_min(0.5))

    def _count(self, sim: Float[Tensor, "B R"], y: Int[Tensor, "B"], ref: Ref | None):
        """Return the histograms of positives and of negatives of every row, computed in blocks of rows to save memory."""
        parts, space = blocks(sim), SPACES_BY_NAME[self.space]
        source = None if self.relevance is None else self.relevance.bound(y if ref is None else ref.y)
        scale = (self.nodes - 1) / (1 - space.least)
        found = [
            soft_histograms(
                (space.similarity(s) - space.least) * scale, positive_negative_masks(y, ref, part, source), self.nodes
            )
            for s, part in zip(split_rows(sim, parts), parts)
        ]
        return torch.cat([pos for pos, _ in found]), torch.cat([neg for _, neg in found])
