"""Distances in hyperbolic space, which has room for trees: for pair losses, in place of the cosine."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from likewise.similarity import NEAREST, length


def neg_hyperbolic(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Minus the distance in the Poincare ball (curvature -1) of vectors brought there by the exponential map at 0.

    By the law of cosines, which needs no points near the rim: cosh d = 1 + 2 sinh^2(|a| - |b|) + sinh 2|a| sinh 2|b| (1 - cos).
    Unit embeddings lie on a sphere there, and are 0 to 4 apart. The slope is finite where two coincide.
    """
    n, m = length(a)[:, None], length(b)[None, :]
    above = 2 * (n - m).sinh().square() + (2 * n).sinh() * (2 * m).sinh() * (1 - a @ b.T / (n * m))
    above = above.clamp_min(NEAREST)
    return -(above + above.sqrt() * (above + 2).sqrt()).log1p()
