from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import Count
from likewise.core.contracts import BatchSampler
from likewise.core.errors import LikewiseError


class Shuffled(BatchSampler):
    """Every sample once per epoch, in random order; an incomplete last batch is left out.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: samples in a batch.
        seed: the run fills it in.
    """

    def __init__(self, labels: Int[np.ndarray, "N"], batch: Count = 128, seed: int = 0):
        if batch > len(labels):
            raise LikewiseError(f"Shuffled: batch must be at most the {len(labels)} training samples, got {batch}")
        self.labels = labels
        self.batch = batch
        self.seed = seed

    def __len__(self) -> int:
        return len(self.labels) // self.batch

    def epoch_batches(self, number: int) -> list[list[int]]:
        order = np.random.default_rng((self.seed, number)).permutation(len(self.labels))
        return order[: len(self) * self.batch].reshape(len(self), self.batch).tolist()
