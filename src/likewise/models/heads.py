"""Heads: what turns the pooled feature of a backbone into an embedding. `__all__` is the registry."""

from __future__ import annotations

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from likewise.types import LikewiseError

__all__ = ["MLP", "Linear"]


class Linear(nn.Module):
    """One linear layer: the head of nearly every paper on metric learning.

    Args:
        features: width of the pooled feature.
        dim: width of the embedding.
    """

    def __init__(self, features: int, dim: int):
        super().__init__()
        require_positive("Linear", features=features, dim=dim)
        self.features = features
        self.dim = dim
        self.fc = nn.Linear(features, dim)

    def forward(self, f: Float[Tensor, "B F"]) -> Float[Tensor, "B D"]:
        return self.fc(f)


class MLP(nn.Module):
    """Linear layers with ReLU between them.

    Paper: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020.
    Differs: the hidden width is a number of its own, not the width of the feature.

    Args:
        features: width of the pooled feature.
        dim: width of the embedding.
        hidden: width of every layer but the last.
        layers: number of linear layers; 1 is `Linear`. Paper: 2.
    """

    def __init__(self, features: int, dim: int, hidden: int = 512, layers: int = 2):
        super().__init__()
        require_positive("MLP", features=features, dim=dim, hidden=hidden, layers=layers)
        self.features = features
        self.dim = dim
        self.hidden = hidden
        self.layers = layers
        widths = [features] + [hidden] * (layers - 1) + [dim]
        steps: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            steps += [nn.Linear(wide, narrow), nn.ReLU()]
        self.net = nn.Sequential(*steps[:-1])

    def forward(self, f: Float[Tensor, "B F"]) -> Float[Tensor, "B D"]:
        return self.net(f)


def require_positive(owner: str, **numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise LikewiseError(f"{owner}: {name} must be at least 1, got {value}")
