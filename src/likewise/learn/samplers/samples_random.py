from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge
from jaxtyping import Int

from likewise.core.contracts import BatchSampler
from likewise.core.errors import LikewiseError
from likewise.learn.samplers._class_index import Lonely, usable_classes


class SamplesRandom(BatchSampler):
    """Batches of samples from random classes with at least one positive pair (SPC-R).

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020 (SPC-R).
    Formula: batch - 1 times: a class, uniform over classes, and a sample of it; then one more sample of a class drawn before
    Differs: samples of a class are drawn without replacement until the class is exhausted, so that the last sample is another
        image of its class. The study may draw the same image again.
    Needs: a loss and miner that accept samples without a positive.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: samples in a batch. Study: 112.
        lonely: what to do with classes of a single sample: "error", or "skip" to train without them.
        class_names: names of the classes, for errors; the run fills it in.
        with_replacement: draw samples inside a class with replacement, as the study does: an image may occur twice, and may
            be its own positive.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        batch: Annotated[int, Ge(2)] = 112,
        lonely: Lonely = "error",
        class_names: tuple[str, ...] | None = None,
        with_replacement: bool = False,
        seed: int = 0,
    ):
        self.labels = labels
        self.batch = batch
        self.lonely = lonely
        self.class_names = class_names
        self.with_replacement = with_replacement
        self.seed = seed
        self._members = usable_classes("SamplesRandom", labels, "the last sample of a batch", lonely, class_names)
        if batch > len(self._members.every) and not with_replacement:
            raise LikewiseError(
                f"SamplesRandom: batch={batch} needs as many samples, but there are {len(self._members.every)}; lower batch"
            )

    def __len__(self) -> int:
        return max(1, len(self._members.every) // self.batch)

    def epoch_batches(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        return [self._one_batch(rng).tolist() for _ in range(len(self))]

    def _one_batch(self, rng: np.random.Generator) -> Int[np.ndarray, "B"]:
        classes = rng.integers(len(self._members.rows), size=self.batch - 1)
        classes = np.append(classes, rng.choice(classes))
        if self.with_replacement:
            return self._members.draw(classes, rng)
        return self._members.fill(classes, 1, rng)[:, 0]
