from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import Count
from likewise.core.contracts import BatchSampler
from likewise.core.errors import LikewiseError
from likewise.learn.samplers._class_index import Lonely, check_batch, deal_from, usable_classes


class SamplesPerClass(BatchSampler):
    """Batches of a few classes with `per_class` samples each (SPC-k), so that every sample has a positive.

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020 (SPC-2, SPC-4, SPC-8).
    Formula: a batch = batch / per_class classes, per_class samples of each
    Differs: the classes of a batch are distinct. Classes, and the samples of a class, are drawn without replacement: within an
        epoch every class, and every sample of a class, is drawn once before any is drawn again. A class smaller than per_class
        repeats its samples.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: samples in a batch. Study: 112.
        per_class: samples of each class in a batch. Study: 2.
        lonely: what to do with classes of a single sample: "error", or "skip" to train without them.
        class_names: names of the classes, for errors; the run fills it in.
        with_replacement: draw classes, and samples inside a class, with replacement, as the study does: a class may occur
            twice in a batch, and so may an image.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        batch: Count = 112,
        per_class: Count = 2,
        lonely: Lonely = "error",
        class_names: tuple[str, ...] | None = None,
        with_replacement: bool = False,
        seed: int = 0,
    ):
        check_batch("SamplesPerClass", batch, per_class)
        self.labels = labels
        self.batch = batch
        self.per_class = per_class
        self.lonely = lonely
        self.class_names = class_names
        self.with_replacement = with_replacement
        self.largest_class = None if with_replacement else per_class
        self.seed = seed
        why = f"per_class={per_class}" if per_class > 1 else None
        self._members = usable_classes("SamplesPerClass", labels, why, lonely, class_names)
        classes = len(self._members.rows)
        if classes < batch // per_class and not with_replacement:
            raise LikewiseError(
                f"SamplesPerClass: batch={batch} with per_class={per_class} needs {batch // per_class} classes, but the labels "
                f'have {classes}; try --sampler "SamplesPerClass(batch={classes * per_class}, per_class={per_class})", '
                "or Shuffled()"
            )

    def __len__(self) -> int:
        return max(1, len(self._members.every) // self.batch)

    def epoch_batches(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        slots, rows = self.batch // self.per_class, self._members.rows
        if self.with_replacement:
            classes = rng.integers(len(rows), size=(len(self), slots))
            return self._members.draw(classes.repeat(self.per_class, axis=1), rng).tolist()
        deck: list[int] = []
        packs: list[list[int]] = [[] for _ in rows]
        batches = []
        for _ in range(len(self)):
            chosen = deal_from(deck, np.arange(len(rows)), slots, rng)
            batches.append([r for c in chosen for r in deal_from(packs[c], rows[c], self.per_class, rng)])
        return batches
