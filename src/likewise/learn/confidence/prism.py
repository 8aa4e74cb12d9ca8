from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.argument_checks import Count, CountOrZero, ShareBelowOne
from likewise.core.contracts import Confidence
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import SampleWeights
from likewise.learn.ring_buffer import remember


class PRISM(Confidence):
    """Drops the samples that are least similar to the stored samples of their class; their share is the assumed noise rate.

    Paper: Liu et al., Noise-resistant Deep Metric Learning with Ranking-based Instance Selection, CVPR 2021.
    Formula: kept: P_i > m, P_i = e^<v_y, z_i> / sum_c e^<v_c, z_i>, v_c the mean of the stored samples of class c;
        m = mean of the last `window` Q, Q = the floor(share B)-th smallest P_i of a batch
    Differs: nothing in the rule. P_i is 1 for a class without stored samples, and its centre a zero vector for other samples; a Q
        of 1 is ignored; if no sample would be kept, the floor(share B) lowest are dropped and the window starts again. The
        authors' code updates only the centres of classes stored in the last step, and treats the end of its memory differently;
        here centres are computed from the current memory, and the oldest sample is overwritten first. If the share is less than
        one sample of the batch, all are kept. `partner` excludes dropped samples as partners; CrossBatchMemory does not store
        them either.

    Args:
        classes: number of training classes; the run fills it in.
        dim: size of the embedding; the run fills it in.
        labels: label of every training sample; the run fills it in.
        share: assumed noise rate, in [0, 1). Paper: the true one.
        memory: number of stored samples. None, as in the paper: the number of training samples.
        window: number of Q that are averaged (sTRM). 1: that of the batch alone (TRM). Paper: 30 for CARS-98N; code: else 5.
        warmup: first steps, in which no sample is dropped.
    """

    past: Tensor
    past_y: Tensor
    filled: Tensor
    next_row: Tensor
    quantiles: Tensor
    steps_done: Tensor

    def __init__(
        self, classes: int, dim: int, labels: Int[np.ndarray, "N"], share: ShareBelowOne,
        memory: Count | None = None, window: Count = 30, warmup: CountOrZero = 0,
    ):  # fmt: skip
        super().__init__()
        self.classes = classes
        self.dim = dim
        self.labels = labels
        self.share = share
        self.memory = memory
        self.window = window
        self.warmup = warmup
        # The batch of this step, stored by after_step.
        self.pending: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        size = len(labels) if memory is None else memory
        self.register_buffer("past", torch.zeros(size, dim))
        self.register_buffer("past_y", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))
        self.register_buffer("next_row", torch.zeros((), dtype=torch.int64))
        self.register_buffer("quantiles", torch.full((window,), torch.nan))  # newest last
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        z, y = at_least_float32(z.detach()), y.long()
        clean = self._clean(z, y)
        warm = self.steps_done < self.warmup
        kept, quantiles = self._choose(clean)
        kept = torch.where(warm, clean.isfinite(), kept)
        quantiles = torch.where(warm, self.quantiles, quantiles)
        if self.training:
            self.pending = z, y, kept, quantiles
        limit = quantiles.nanmean()
        return SampleWeights(
            w=kept.float(),
            partner=kept,
            mean_over="kept",
            suspicion=1 - clean,
            threshold=(1 - limit).nan_to_num(torch.inf),
        )

    def after_step(self, step: int) -> None:
        if self.pending is not None:
            z, y, kept, quantiles = self.pending
            remember(self.next_row, self.filled, kept, (self.past, z), (self.past_y, y))
            self.quantiles.copy_(quantiles)
            self.pending = None
        self.steps_done.fill_(step)

    def observe_state(self) -> dict[str, Tensor]:
        return {"memory_filled": self.filled.detach().clone()}

    def _clean(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
        """Return P, the probability that each label is right."""
        with full_precision(z):
            used = (torch.arange(len(self.past), device=z.device) < self.filled).to(self.past)
            count = self.past.new_zeros(self.classes).index_add(0, self.past_y, used)
            centres = self.past.new_zeros(self.classes, self.dim).index_add(0, self.past_y, self.past * used[:, None])
            centres = (centres / count.clamp_min(1)[:, None]).to(z)
            clean = (z @ centres.T).softmax(1).gather(1, y[:, None]).squeeze(1)
            return clean.where((count[y] > 0) | ~clean.isfinite(), 1)

    def _choose(self, clean: Float[Tensor, "B"]) -> tuple[Bool[Tensor, "B"], Float[Tensor, "W"]]:
        """Return the mask of kept samples, and the window of Q after this batch."""
        lowest, sound = int(self.share * len(clean) + 1e-9), clean.isfinite()
        if not lowest:
            return sound, self.quantiles
        ascending, order = clean.sort(stable=True)  # NaN is sorted last
        q = ascending[lowest - 1].to(self.quantiles)
        quantiles = torch.where(q < 1, torch.cat([self.quantiles[1:], q[None]]), self.quantiles)
        limit = quantiles.nanmean()
        kept = sound & ((clean > limit) | limit.isnan())
        none_kept = ~kept.any()
        rank = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
        alone = torch.cat([torch.full_like(quantiles[1:], torch.nan), quantiles[-1:]])
        return torch.where(none_kept, sound & (rank >= lowest), kept), torch.where(none_kept, alone, quantiles)
