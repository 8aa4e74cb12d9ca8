from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge
from jaxtyping import Int

from likewise.core.contracts import BatchSampler, Relevance
from likewise.core.errors import LikewiseError
from likewise.learn.samplers._class_index import check_batch, deal_from, some_of


class RelatedSamples(BatchSampler):
    """Batches for a relevance: anchors, each with samples that are relevant to it; or whole judged triplets.

    Formula: a batch = batch / per_anchor anchors; to each, per_anchor - 1 random samples that are relevant to it. If there are
        judged triplets: the samples of random triplets
    Differs: ours. Anchors, and triplets, are drawn without replacement: each is drawn once before any is drawn again. No sample
        is twice in a batch; where an anchor has too few relevant samples, further anchors take the places. Samples to which no
        other is relevant are not anchors.

    Args:
        labels: classes of the training samples; the run fills it in.
        relevance: which samples are relevant to each other; the run fills it in.
        batch: samples in a batch.
        per_anchor: samples around each anchor, itself included. Not used with judged triplets.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        relevance: Relevance | None = None,
        batch: Annotated[int, Ge(2)] = 112,
        per_anchor: Annotated[int, Ge(2)] = 4,
        seed: int = 0,
    ):
        check_batch("RelatedSamples", batch, per_anchor, "per_anchor")
        if relevance is None:
            raise LikewiseError(
                "RelatedSamples: there must be a relevance, got none; use --relevance or SamplesPerClass"
            )
        if relevance.by == "sample" and relevance.ids != len(labels):
            raise LikewiseError(
                f"RelatedSamples: {type(relevance).__name__} must be between the {len(labels)} training samples, got "
                f"{relevance.ids} samples"
            )
        if batch > len(labels):
            raise LikewiseError(
                f"RelatedSamples: batch must be at most the {len(labels)} training samples, got {batch}"
            )
        self.labels = labels
        self.relevance = relevance
        self.batch = batch
        self.per_anchor = per_anchor
        self.seed = seed
        self._triplets = relevance.judged()
        if self._triplets is not None and batch < 3:
            raise LikewiseError(f"RelatedSamples: batch must be 3 or more to hold a triplet, got {batch}")
        if self._triplets is not None and len(self._triplets):
            self._anchors = np.arange(len(self._triplets))
            return
        self._start, self._found = relevance.related()
        size = np.bincount(labels, minlength=relevance.ids if relevance.by == "class" else 0)
        self._rows = np.split(np.argsort(labels, kind="stable"), np.cumsum(size)[:-1])  # of every class
        self._anchors = self._find_anchors(size)
        if not len(self._anchors):
            raise LikewiseError(
                f"RelatedSamples: some training samples must be relevant to each other, but {type(relevance).__name__} has no "
                f"pair of relevance {relevance.threshold:g} or more among them; lower its threshold, or use Shuffled"
            )

    def _find_anchors(self, size: Int[np.ndarray, "C"]) -> Int[np.ndarray, "n"]:
        """Return the rows to which another row is relevant, given the number of samples of every class."""
        if self.relevance.by == "sample":
            return np.flatnonzero(np.diff(self._start) > 0)
        upto = np.concatenate([[0], np.cumsum(size[self._found])])
        # Samples of a class are relevant to each other.
        mates = upto[self._start[1:]] - upto[self._start[:-1]] + size - 1
        return np.flatnonzero(mates[self.labels] > 0)

    def __len__(self) -> int:
        return max(1, len(self.labels) // self.batch)

    def epoch_batches(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        deck: list[int] = []
        return [self._one_batch(deck, rng) for _ in range(len(self))]

    def _one_batch(self, deck: list[int], rng: np.random.Generator) -> list[int]:
        batch: dict[int, None] = {}  # in order, and each sample once
        for _ in range(2 * len(self._anchors)):
            (anchor,) = deal_from(deck, self._anchors, 1, rng)
            group = self._group(anchor, batch, rng)
            if len(batch) + len(group) <= self.batch:
                batch |= dict.fromkeys(group)
            if len(batch) >= self.batch - 1:
                break
        is_left = np.ones(len(self.labels), bool)
        is_left[list(batch)] = False
        left = np.flatnonzero(is_left)
        return [*batch, *rng.permutation(left)[: self.batch - len(batch)].tolist()]

    def _group(self, anchor: int, taken: dict, rng: np.random.Generator) -> list[int]:
        """Return the samples of a triplet, or an anchor with relevant samples, that are not in the batch; none without two."""
        if self._triplets is not None and len(self._triplets):
            return [int(r) for r in self._triplets[anchor] if r not in taken]
        if anchor in taken:
            return []
        number = anchor if self.relevance.by == "sample" else self.labels[anchor]
        others = self._found[self._start[number] : self._start[number + 1]]
        if self.relevance.by == "class":
            others = np.concatenate([self._rows[i] for i in (*others, number)])
        count = min(self.per_anchor, self.batch - len(taken)) - 1
        drawn = some_of(others, 2 * self.per_anchor + len(taken), rng)
        mates = [r for r in drawn if r not in taken and r != anchor][:count]
        return [anchor, *mates] if mates else []
