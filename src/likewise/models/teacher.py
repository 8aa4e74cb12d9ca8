"""A slow copy of a network in training, whose judgement changes less from step to step."""

from __future__ import annotations

import copy

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from likewise.types import LikewiseError, Output


class Teacher(nn.Module):
    """The exponential moving average of a network's parameters; its buffers (such as BatchNorm's statistics) are copied.

    After update t (from 0) it keeps min(momentum, (1 + t) / (10 + t)) of itself: at first it follows quickly, so that it does
    not remember weights that were never trained. It is always in evaluation mode and gives no gradient.

    Args:
        embedder: the network to follow; it is copied and never kept.
        momentum: how much of itself it keeps at an update, in the long run; from 0 (the network as it is) to below 1.
    """

    updates: Tensor

    def __init__(self, embedder: nn.Module, momentum: float = 0.999):
        super().__init__()
        if not 0 <= momentum < 1:
            raise LikewiseError(f"Teacher: momentum must be 0 or more and below 1, got {momentum}; 0.999 is common")
        self.momentum = momentum
        self.network = copy.deepcopy(embedder).requires_grad_(False).eval()
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64, device=next(embedder.parameters()).device))

    def forward(self, x: Shaped[Tensor, "B ..."]) -> Output:
        with torch.no_grad():
            return self.network(x)

    def train(self, mode: bool = True) -> Teacher:
        return super().train(False)

    @torch.no_grad()
    def update(self, embedder: nn.Module) -> None:
        """One step towards the network as it is now."""
        keep = ((1 + self.updates) / (10 + self.updates)).clamp_max(self.momentum)
        mine: list[Tensor] = list(self.network.parameters())
        theirs: list[Tensor] = list(embedder.parameters())
        way = torch._foreach_sub(theirs, mine)  # many small tensors in a few calls, as torch's own averages do it
        torch._foreach_mul_(way, 1 - keep)
        torch._foreach_add_(mine, way)
        for own, other in zip(self.network.buffers(), embedder.buffers(), strict=True):
            own.copy_(other)
        self.updates += 1
