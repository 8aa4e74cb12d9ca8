from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Count, ShareAboveZero
from likewise.core.contracts import Confidence
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import SampleWeights
from likewise.learn.ring_buffer import remember


class N2D2(Confidence):
    """Drops the samples whose label is much rarer among their nearest stored samples than the most frequent label there.

    It needs no noise rate, but a pretrained network: among embeddings of an untrained one nearly all samples are dropped.

    Paper: Galanakis et al., Nearest Neighbor-Based Data Denoising for Deep Metric Learning, VISAPP 2024.
    Formula: kept: n_y / max_c n_c >= least, n_c the number of samples of class c among the `neighbours` nearest stored samples
    Differs: of the paper only the abstract could be read; the rule and its values are those of the authors' code. The code stores
        the embeddings of an epoch and uses them during the next one; here the stored samples are always the last ones, as many
        as there are training samples. As in the code, dropped samples are stored too, with the given label, and nothing is
        dropped in the first epoch: here, until the memory is full. `partner` excludes dropped samples as partners.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        labels: label of every training sample; the run fills it in.
        neighbours: number of nearest stored samples. Code: 200.
        least: minimum ratio of a kept sample, in (0, 1]. Code: 0.5.
        memory: number of stored samples. None: the number of training samples.
    """

    past: Tensor
    past_y: Tensor
    filled: Tensor
    next_row: Tensor

    def __init__(
        self, classes: int, dim: int, labels: Int[np.ndarray, "N"], neighbours: Count = 200,
        least: ShareAboveZero = 0.5, memory: Count | None = None,
    ):  # fmt: skip
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.labels = labels
        self.neighbours = neighbours
        self.least = least
        self.memory = memory
        self.pending: tuple[Tensor, Tensor, Tensor] | None = None  # the batch of this step, stored by after_step
        size = len(labels) if memory is None else memory
        self.register_buffer("past", torch.zeros(size, dim))
        self.register_buffer("past_y", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self.register_buffer("next_row", torch.zeros((), dtype=torch.int64))

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        z, y = at_least_float32(z.detach()), y.long()
        sound = z.isfinite().all(1)
        ratio = torch.where(self.filled == len(self.past), self._ratio(z.where(sound[:, None], 0), y), 1.0)
        kept = sound & (ratio >= self.least)
        if self.training:
            self.pending = z, y, sound
        return SampleWeights(
            w=kept.float(),
            partner=kept,
            mean_over="kept",
            suspicion=1 - ratio,
            threshold=ratio.new_tensor(1 - self.least),
        )

    def after_step(self, step: int) -> None:
        if self.pending is not None:
            z, y, sound = self.pending
            remember(self.next_row, self.filled, sound, (self.past, z), (self.past_y, y))
            self.pending = None

    def observe_state(self) -> dict[str, Tensor]:
        return {"memory_filled": self.filled.detach().clone()}

    def _ratio(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
        """Return how frequent the own label is among the neighbours, relative to the most frequent label."""
        with full_precision(z):
            near = (z @ self.past.to(z).T).topk(min(self.neighbours, len(self.past)), dim=1).indices
        labels = self.past_y[near]
        count = z.new_zeros(len(z), self.classes).scatter_add(1, labels, torch.ones_like(labels, dtype=z.dtype))
        return count.gather(1, y[:, None]).squeeze(1) / count.amax(1)
