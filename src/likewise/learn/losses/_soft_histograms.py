"""Differentiable histograms of the positives and the negatives of every anchor."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.types import Pairs


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
