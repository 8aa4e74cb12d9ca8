from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Int

from likewise.contracts import BatchSampler
from likewise.types import LikewiseError


class SamplesPerClass(BatchSampler):
    """Batches of a few classes with a few samples each (SPC-k), so that every sample has a class mate.

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020 (SPC-2, SPC-4, SPC-8).
    Formula: a batch = batch / per_class classes, per_class samples of each
    Differs: classes of a batch are distinct, and they and their samples are dealt from shuffled packs, so that every class, and
        every sample of a class, comes up once before any comes up again. A class smaller than per_class repeats its samples.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: samples in a batch. Study: 112.
        per_class: samples of each class in a batch. Study: 2.
        lonely: what to do with classes of a single sample: "error", or "skip" to train without them.
        class_names: names of the classes, for errors; the run fills it in.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        batch: int = 112,
        per_class: int = 2,
        lonely: Literal["error", "skip"] = "error",
        class_names: tuple[str, ...] | None = None,
        seed: int = 0,
    ):
        if per_class < 1 or batch < 1 or batch % per_class:
            raise LikewiseError(
                f"SamplesPerClass: batch must be a multiple of per_class, got batch={batch}, per_class={per_class}"
            )
        if lonely not in ("error", "skip"):
            raise LikewiseError(f"SamplesPerClass: lonely must be 'error' or 'skip', got '{lonely}'")
        self.labels = labels
        self.batch = batch
        self.per_class = per_class
        self.lonely = lonely
        self.class_names = class_names
        self.seed = seed
        classes, size = np.unique(labels, return_counts=True)
        alone = classes[size == 1]
        if per_class > 1 and len(alone) and lonely == "error":
            first = class_names[alone[0]] if class_names else f"class {alone[0]}"
            raise LikewiseError(
                f"SamplesPerClass: per_class={per_class} needs two samples of a class, but {len(alone)} classes have "
                f"one (first: {first}); remove them, or train without them: SamplesPerClass(lonely='skip')"
            )
        used = classes[size > 1] if per_class > 1 else classes
        if len(used) < batch // per_class:
            raise LikewiseError(
                f"SamplesPerClass: a batch of {batch} with {per_class} of each wants {batch // per_class} classes, but the "
                f"labels hold {len(used)}; try SamplesPerClass(batch={len(used) * per_class}, per_class={per_class}), or Shuffled"
            )
        self._members = _members(labels, used)

    def __len__(self) -> int:
        return max(1, sum(map(len, self._members)) // self.batch)

    def one_pass(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        deck: list[int] = []
        packs: list[list[int]] = [[] for _ in self._members]
        batches = []
        for _ in range(len(self)):
            chosen = _deal(deck, np.arange(len(self._members)), self.batch // self.per_class, rng)
            batches.append([r for c in chosen for r in _deal(packs[c], self._members[c], self.per_class, rng)])
        return batches


def _deal(pack: list[int], everyone: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """Take so many off the pack; when it runs short, a new one goes below it, without what would repeat on top."""
    while len(pack) < count:
        left, fresh = set(pack), rng.permutation(everyone).tolist()
        pack += [v for v in fresh if v not in left] + [v for v in fresh if v in left]
    taken, pack[:] = pack[:count], pack[count:]
    return taken


def _members(labels: np.ndarray, used: np.ndarray) -> list[np.ndarray]:
    """Positions of each used class, in one sort: a mask per class would be classes x samples."""
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    wanted = set(used.tolist())
    return [g for g in groups if int(labels[g[0]]) in wanted]
