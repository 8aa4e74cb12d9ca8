"""Adversarial decorrelation: a regressor predicts one embedding from another, and the embeddings learn to prevent it."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.similarity import at_least_float32, full_precision


def reverse_gradient(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x, with minus its gradient in the backward pass."""
    return 2 * x.detach() - x


class Decorrelation(nn.Module):
    """Minus the squared products of a target and its prediction from a source; the regressor lowers it, the embeddings raise it.

    Paper: Roth et al., MIC: Mining Interclass Characteristics for Improved Deep Metric Learning, ICCV 2019; Milbich et al.,
        DiVA: Diverse Visual Feature Aggregation for Deep Metric Learning, ECCV 2020.
    Formula: l_i = -1/d sum_d (t_id g(s_i)_d)^2, g a network of two layers with output of unit length; s, t of unit length with
        their gradients reversed

    Args:
        source: width of s.
        target: width of t.
        hidden: width of the hidden layer of g. Authors' code: 512.
    """

    def __init__(self, source: int, target: int, hidden: int = 512):
        super().__init__()
        self.regressor = nn.Sequential(nn.Linear(source, hidden), nn.ReLU(), nn.Linear(hidden, target))

    def forward(self, source: Float[Tensor, "B s"], target: Float[Tensor, "B t"]) -> Float[Tensor, "B"]:
        with full_precision(source):
            s, t = (F.normalize(reverse_gradient(at_least_float32(x)), dim=1, eps=1e-6) for x in (source, target))
            return -(t * F.normalize(self.regressor(s), dim=1, eps=1e-6)).square().mean(1)
