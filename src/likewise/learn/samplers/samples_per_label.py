from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from annotated_types import Ge
from jaxtyping import Int

from likewise.core.argument_checks import Count
from likewise.core.contracts import BatchSampler
from likewise.core.errors import LikewiseError
from likewise.learn.samplers._class_index import check_batch, deal_from, some_of


class SamplesPerLabel(BatchSampler):
    """Batches for samples with several labels: a few labels, with `per_label` samples of each.

    Formula: a batch = batch / per_label labels; of each a random sample, and those per_label - 1 of `candidates` random samples
        of that label that share the largest part of their labels with it (Jaccard)
    Differs: ours. Labels are drawn without replacement, and so are the first samples of a label: every label is drawn once before
        any is drawn again, however rare it is. No sample is twice in a batch. Labels of a single sample are not drawn.

    Args:
        labels: classes of the training samples; the run fills it in.
        label_sets: label numbers of every class; the run fills it in.
        batch: samples in a batch.
        per_label: samples of each label in a batch.
        candidates: samples among which the others of a label are chosen. per_label - 1: any; more: closer label sets, so that
            more pairs pass the threshold of `SharedLabels`.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        label_sets: Sequence[Sequence[int]] | None = None,
        batch: Count = 112,
        per_label: Annotated[int, Ge(2)] = 4,
        candidates: int = 16,
        seed: int = 0,
    ):
        check_batch("SamplesPerLabel", batch, per_label, "per_label")
        if label_sets is None:
            raise LikewiseError(
                "SamplesPerLabel: the data must have several labels per sample, got one; use SamplesPerClass"
            )
        if candidates < per_label - 1:
            raise LikewiseError(
                "SamplesPerLabel: candidates must be at least per_label - 1, got "
                f"per_label={per_label}, candidates={candidates}"
            )
        self.labels = labels
        self.label_sets = label_sets
        self.batch = batch
        self.per_label = per_label
        self.candidates = candidates
        self.seed = seed
        self._sets = [frozenset(one) for one in label_sets]
        self._rows = _rows_by_label(labels, label_sets)
        usable = len(np.unique(np.concatenate([*self._rows, np.zeros(0, np.int64)])))
        if usable < batch:
            raise LikewiseError(
                f"SamplesPerLabel: batch={batch} needs as many samples that share a label with another one, but there are "
                f"{usable}; lower batch"
            )
        self._usable = usable

    def __len__(self) -> int:
        return max(1, self._usable // self.batch)

    def epoch_batches(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        deck: list[int] = []
        packs: list[list[int]] = [[] for _ in self._rows]
        return [self._one_batch(deck, packs, rng) for _ in range(len(self))]

    def _one_batch(self, deck: list[int], packs: list[list[int]], rng: np.random.Generator) -> list[int]:
        batch: dict[int, None] = {}  # in order, and each sample once
        every = np.arange(len(self._rows))
        passed = 0  # labels in a row that had no new sample
        while len(batch) < self.batch:
            (label,) = deal_from(deck, every, 1, rng)
            new = self._slot(label, packs[label], batch, min(self.per_label, self.batch - len(batch)), rng)
            passed = 0 if new else passed + 1
            batch |= dict.fromkeys(new)
            if passed > len(every):  # the labels left are exhausted: any other sample that can be used
                left = np.setdiff1d(np.concatenate(self._rows), list(batch))
                batch |= dict.fromkeys(rng.permutation(left)[: self.batch - len(batch)].tolist())
        return list(batch)

    def _slot(self, label: int, pack: list[int], taken: dict, count: int, rng: np.random.Generator) -> list[int]:
        """Return up to `count` samples of a label that are not in the batch, none if none of them would have a mate."""
        rows = self._rows[label]
        dealt = (deal_from(pack, rows, 1, rng)[0] for _ in range(len(rows)))
        first = next((row for row in dealt if row not in taken), None)
        if first is None:
            return []
        if count == 1:  # the last place: it needs a sample of the label in the batch
            return [first] if np.isin(rows, list(taken)).any() else []
        drawn = some_of(rows, 2 * self.candidates + len(taken), rng)
        others = [r for r in drawn if r not in taken and r != first][: self.candidates]
        others.sort(key=lambda r: -self._share(first, r))  # stable: equal ones stay in random order
        return [first, *others[: count - 1]] if others else []

    def _share(self, a: int, b: int) -> float:
        """Return the share of labels that two samples have in common."""
        one, other = self._sets[self.labels[a]], self._sets[self.labels[b]]
        return len(one & other) / len(one | other)


def _rows_by_label(labels: Int[np.ndarray, "N"], label_sets: Sequence[Sequence[int]]) -> list[Int[np.ndarray, "n"]]:
    """Return the rows of every label that has two or more."""
    size = np.array([len(one) for one in label_sets])
    rows = np.repeat(np.arange(len(labels)), size[labels])
    flat = np.concatenate([np.asarray(one) for one in label_sets])
    start = np.cumsum(size) - size
    inside = np.arange(len(rows)) - np.repeat(np.cumsum(size[labels]) - size[labels], size[labels])
    label = flat[np.repeat(start[labels], size[labels]) + inside]
    order = np.argsort(label, kind="stable")
    groups = np.split(rows[order], np.flatnonzero(np.diff(label[order])) + 1)
    return [group for group in groups if len(group) > 1]
