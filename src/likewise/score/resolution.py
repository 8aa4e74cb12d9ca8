"""A note on embeddings whose cosines differ by less than ranking resolves."""

from __future__ import annotations

import torch
from jaxtyping import Float

MIN_DIRECTION_SPREAD = 1e-5
"""Spread of the directions of embeddings from which ranking by cosine is safe; the first losses of R@1 are at 1e-6."""

MAX_DIRECTION_ROWS = 4096
"""Number of rows that `direction_note` looks at."""


def direction_note(z: Float[torch.Tensor, "N D"]) -> str:
    """Return a note if the embeddings have nearly one direction, so that rounding decides the order of cosines; else "".

    The spread is 1 minus the squared length of the mean unit vector, over some rows of the embeddings.
    """
    some = z[:: -(-len(z) // MAX_DIRECTION_ROWS)].double()
    spread = 1 - float((some / some.norm(dim=1, keepdim=True).clamp_min(1e-150)).mean(0).square().sum())
    if spread >= MIN_DIRECTION_SPREAD or len(some) < 2:
        return ""
    return (
        f"all embeddings have nearly one direction (1 - |mean of unit vectors|^2 = {spread:.1e}): cosines are resolved to about "
        "1e-8, so rounding decides part of the ranking; use --similarity euclidean, or subtract the mean vector first"
    )
