"""KL divergence between the similarities of two embedding spaces, row by row: the quantity that all distillation terms use."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from likewise.core.similarity import at_least_float32, full_precision


def similarities(z: Float[Tensor, "B D"]) -> Float[Tensor, "B B"]:
    """Return the cosine similarities within a batch of unit vectors, in full precision."""
    with full_precision(z):
        z = at_least_float32(z)
        return z @ z.T


def kl_rows(a: Float[Tensor, "B R"], b: Float[Tensor, "B R"], temperature: float = 1.0) -> Float[Tensor, "B"]:
    """Return T^2 KL(softmax(a_i / T) || softmax(b_i / T)) for every row i; T^2 keeps the gradient scale independent of T."""
    p, q = (a / temperature).log_softmax(1), (b / temperature).log_softmax(1)
    return temperature**2 * (p.exp() * (p - q)).sum(1)
