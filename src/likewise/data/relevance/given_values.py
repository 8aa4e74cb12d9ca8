from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import ShareAboveZero
from likewise.core.contracts import Relevance
from likewise.core.types import LikewiseError


class GivenValues(Relevance):
    """Relevance as a ready matrix, for a training loop of your own: `loss.with_relevance(GivenValues(r))(z, torch.arange(B))`.

    Args:
        values: relevance of every pair of ids, 0 to 1; NaN: not known.
        threshold: a pair of this relevance or more is positive.
    """

    symmetric = False
    values: Float[Tensor, "N N"]

    def __init__(self, values: Float[Tensor, "N N"], threshold: ShareAboveZero = 0.5):
        super().__init__()
        if values.dim() != 2 or len(values) != values.shape[1]:
            raise LikewiseError(
                f"GivenValues: values must be a square matrix, got shape {tuple(values.shape)}; one row and column per sample"
            )
        known = values[~values.isnan()]
        if len(known) and (known.min() < 0 or known.max() > 1):
            raise LikewiseError(
                f"GivenValues: values must be from 0 to 1 or NaN, got {float(known.min()):g} to {float(known.max()):g}; scale"
            )
        self.threshold = threshold
        self.ids = len(values)
        values = values.detach().to(torch.get_default_dtype())
        self.register_buffer("values", None, persistent=False)
        self.values = values

    def forward(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        return self.values[a[:, None], b[None, :]]
