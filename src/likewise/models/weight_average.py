"""Average of the weights of a network over the last part of its training, which varies less than the last weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from likewise.models.embedder import Embedder


class WeightAverage:
    """Running average of the trained parameters of a network and of its BatchNorm statistics.

    Formula: after step t, a_t = a_(t-1) + w_t (x_t - a_(t-1)), w_t = min(1, 1 / (share t)); so x_s has a weight near
        (s / t)^(1 / share - 1) / (share t), and the mean age of the averaged weights is t share / (1 + share)
    The average needs no length of the training, so a stopped, resumed or extended training has the right one at every step.

    Args:
        embedder: the network; the average holds references to its tensors.
        share: share of the steps so far that the average is over.
    """

    def __init__(self, embedder: Embedder, share: float):
        trained = {id(p) for p in (*embedder.backbone_parameters(), *embedder.head_parameters())}
        named = (*((p, id(p) in trained) for p in embedder.parameters()), *((b, True) for b in embedder.buffers()))
        self.share, self.steps = share, 0
        self.current: list[Tensor] = [t.detach() for t, counts in named if counts and t.is_floating_point()]
        self.values = [t.clone() for t in self.current]

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step to the average."""
        self.steps += 1
        torch._foreach_lerp_(self.values, self.current, min(1.0, 1 / (self.share * self.steps)))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the network its averaged weights inside of this context; before the first step, it keeps its own."""
        if not self.steps:
            yield
            return
        kept = [t.clone() for t in self.current]
        torch._foreach_copy_(self.current, self.values)
        try:
            yield
        finally:
            torch._foreach_copy_(self.current, kept)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        torch._foreach_copy_(self.values, [t.to(own) for t, own in zip(state["values"], self.values, strict=True)])
