from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.argument_checks import Count, CountOrZero, Rule
from likewise.core.contracts import Loss, input_of
from likewise.core.similarity import at_least_float32, is_traced
from likewise.core.types import Ref
from likewise.learn.losses.contrastive import Contrastive
from likewise.learn.ring_buffer import remember

DEFAULT_LOSS = Contrastive()
"""The inner loss if none is given. Every memory has its own copy, because `with_relevance` changes a loss."""


SampleLoss = Annotated[
    Loss, Rule("compare samples with samples, like Contrastive()", lambda loss: not hasattr(loss, "dim"))
]
"""A loss without proxies and without a memory of its own."""


class CrossBatchMemory(Loss):
    """Compares the batch with itself and with stored embeddings of the batches before it.

    Paper: Wang et al., Cross-Batch Memory for Embedding Learning, CVPR 2020.
    Formula: l_i = inner loss of sample i against {batch} + {the last `size` samples before it}
    Differs: the paper stores the batch in the memory first, as constants. Here the reference is the batch, with its gradient,
        plus the memory, and the batch is stored after the step; so with an empty memory the result is the inner loss, and a
        sample is never its own positive. As in the paper, earlier embeddings of the same image are positives. Samples that
        `ref.used` excludes are not stored.
    Needs: an inner loss of pairs or triplets, not of proxies.

    Args:
        dim: size of the embedding; the run fills it in.
        loss: the inner loss. Paper: contrastive, and others.
        size: number of samples in the memory. Paper: up to the whole training set.
        start: steps before the first batch is stored, because embeddings change fast at first. Paper: 1000.
    """

    remembers = True
    relevance_inputs = ("pairs",)

    memory: Tensor
    memory_y: Tensor
    filled: Tensor
    next_row: Tensor

    def __init__(self, dim: int, loss: SampleLoss = DEFAULT_LOSS, size: Count = 1024, start: CountOrZero = 0):
        super().__init__()
        loss = copy.deepcopy(loss) if loss is DEFAULT_LOSS else loss
        self.dim = dim
        self.loss = loss
        self.size = size
        self.start = start
        self.input = loss.input
        self.lr_factor = loss.lr_factor
        self.pending: tuple[Tensor, Tensor, Tensor] | None = None  # batch of this step, for `after_step`
        self.register_buffer("memory", torch.zeros(size, dim))
        self.register_buffer("memory_y", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self.register_buffer("next_row", torch.zeros((), dtype=torch.int64))

    @classmethod
    def input_of(cls, arguments: Mapping[str, Any]) -> Literal["unit", "raw"]:
        return input_of(arguments["loss"])

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        ref = ref or Ref(z, y, torch.arange(len(y), device=y.device))
        near = at_least_float32(ref.z)
        used = torch.ones_like(ref.y, dtype=torch.bool) if ref.used is None else ref.used
        if self.training and (torch.compiler.is_compiling() or not is_traced()):
            kept = (
                torch.ones_like(y, dtype=torch.bool) if ref.own is None else used[ref.own.clamp_min(0)] | (ref.own < 0)
            )
            self.pending = z.detach(), y, kept
        filled = torch.arange(self.size, device=self.filled.device) < self.filled
        both = Ref(
            z=torch.cat([near, self.memory.to(near)]),
            y=torch.cat([ref.y, self.memory_y]),
            own=ref.own,
            used=torch.cat([used, filled]),
            live=len(near),
        )
        return self.loss(z, y, both)

    def after_step(self, step: int) -> list[nn.Parameter] | None:
        moved = self.loss.after_step(step)
        if self.pending is not None and step > self.start:
            z, y, kept = self.pending
            remember(self.next_row, self.filled, kept, (self.memory, z), (self.memory_y, y))
        self.pending = None
        return moved

    def observe_state(self) -> dict[str, Tensor]:
        return self.loss.observe_state() | {"memory_filled": self.filled.detach().clone()}
