"""How far the similarities of one space are from those of another, row by row: what every distillation here measures."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from likewise.similarity import at_least_float32, full_precision


def similarities(z: Float[Tensor, "B D"]) -> Float[Tensor, "B B"]:
    """Cosines of a batch's unit vectors, in full precision."""
    with full_precision(z):
        z = at_least_float32(z)
        return z @ z.T


def kl_rows(a: Float[Tensor, "B R"], b: Float[Tensor, "B R"], temperature: float = 1.0) -> Float[Tensor, "B"]:
    """T^2 KL(softmax(a_i / T) || softmax(b_i / T)) of every row i; the T^2 keeps the gradient's size."""
    p, q = (a / temperature).log_softmax(1), (b / temperature).log_softmax(1)
    return temperature**2 * (p.exp() * (p - q)).sum(1)
