"""Exponential moving average of a network in training, whose outputs change less from step to step."""

from __future__ import annotations

import copy

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from likewise.core.argument_checks import CheckedArguments, ShareBelowOne
from likewise.core.types import Output


class Teacher(nn.Module, CheckedArguments):
    """The exponential moving average of a network's parameters; buffers (such as BatchNorm's statistics) are copied.

    The momentum of update t (from 0) is min(momentum, (1 + t) / (10 + t)): it is lower at first, so that untrained initial
    weights fade quickly. The teacher is always in evaluation mode and computes no gradient.

    Args:
        embedder: the network to follow; the teacher copies it and holds no reference.
        momentum: largest momentum, from 0 (a copy of the network) to below 1.
    """

    updates: Tensor

    def __init__(self, embedder: nn.Module, momentum: ShareBelowOne = 0.999):
        super().__init__()
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
        """Move the average towards the current parameters of the network."""
        momentum = ((1 + self.updates) / (10 + self.updates)).clamp_max(self.momentum)
        mine: list[Tensor] = list(self.network.parameters())
        theirs: list[Tensor] = list(embedder.parameters())
        change = torch._foreach_sub(theirs, mine)  # _foreach: few kernel launches for many small tensors
        torch._foreach_mul_(change, 1 - momentum)
        torch._foreach_add_(mine, change)
        for own, other in zip(self.network.buffers(), embedder.buffers(), strict=True):
            own.copy_(other)
        self.updates += 1
