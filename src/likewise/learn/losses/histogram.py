from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.contracts import Loss
from likewise.core.similarity import at_least_float32, cosine, full_precision, positive_negative_masks
from likewise.core.types import Pairs, Ref
from likewise.learn.losses._blockwise import blocks, split_rows
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName


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

    def __init__(self, nodes: Annotated[int, Ge(2)] = 65, space: SpaceName = "cosine"):
        super().__init__()
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


def soft_histograms(
    place: Float[Tensor, "B R"], pairs: Pairs, nodes: int, weight: Float[Tensor, "B R"] | None = None
) -> tuple[Float[Tensor, "B nodes"], Float[Tensor, "B nodes"]]:
    """Return two differentiable histograms for every row: of the positives and of the negatives.

    Each value adds 1 in total to the two nodes around it, split linearly by distance.

    Args:
        place: position of every value on the axis of nodes, from 0 to nodes - 1 up to rounding.
        nodes: number of nodes.
        weight: what each value adds in total; None: 1.
    """
    left = place.detach().floor().nan_to_num(0).clamp(0, nodes - 2)
    column = left.where(pairs.neg, left + nodes).masked_fill(~(pairs.pos | pairs.neg), 2 * nodes).long()
    empty = place.new_zeros(len(place), 3 * nodes)  # the third histogram takes the values outside of both masks
    count = empty.scatter_add(1, column, torch.ones_like(left) if weight is None else weight)
    to_right = empty.scatter_add(1, column, place - left if weight is None else weight * (place - left))
    # The roll adds to the right neighbour; it never crosses histograms, because the last node is never a left node.
    histograms = count - to_right + to_right.roll(1, 1)
    return histograms[:, nodes : 2 * nodes], histograms[:, :nodes]
