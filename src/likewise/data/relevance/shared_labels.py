from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.argument_checks import ShareAboveZero
from likewise.core.contracts import Relevance, RelevanceInput
from likewise.core.types import LikewiseError, Pairs, PairSource


class SharedLabels(Relevance):
    """Relevance of samples with several labels: the share of labels that two samples have in common.

    Formula: "jaccard": |A and B| / |A or B|; "overlap": |A and B| / min(|A|, |B|); "any": 1 if they share a label, else 0
    Ids are classes, each of them a distinct set of labels. Proxies are those of single labels: `targets` is 1 for each label of
    a sample.

    Args:
        label_sets: label numbers of every class; the run fills it in.
        measure: how the labels in common are counted.
        threshold: a pair of this relevance or more is positive. Above 0; a tiny threshold means "any label shared".
    """

    gives: tuple[RelevanceInput, ...] = ("pairs", "targets")
    lists: Int[Tensor, "S L"]
    size: Float[Tensor, "S"]

    def __init__(
        self,
        label_sets: Sequence[Sequence[int]],
        measure: Literal["jaccard", "overlap", "any"] = "jaccard",
        threshold: ShareAboveZero = 0.5,
    ):
        super().__init__()
        if not len(label_sets) or not all(len(labels) for labels in label_sets):
            raise LikewiseError("SharedLabels: every class must have at least one label; drop samples without labels")
        self.label_sets = label_sets
        self.measure = measure
        self.threshold = threshold
        self.ids = len(label_sets)
        self.labels = 1 + max(max(labels) for labels in label_sets)
        self.row_bytes = 4 * (self.labels + 1)
        longest = max(map(len, label_sets))
        # Short lists are filled up with the number `labels`, a label that no sample has.
        lists = torch.full((len(label_sets), longest), self.labels)
        for place, labels in enumerate(label_sets):
            lists[place, : len(labels)] = torch.as_tensor(sorted(labels))
        self.register_buffer("lists", lists, persistent=False)
        self.register_buffer("size", (lists < self.labels).sum(1).float(), persistent=False)

    @property
    def width(self) -> int:
        return self.labels

    def targets(self, y: Int[Tensor, "B"]) -> Float[Tensor, "B C"]:
        """Return 1 for each label of a sample, 0 for the others."""
        return torch.zeros(len(y), self.labels + 1, device=y.device).scatter_(1, self.lists[y], 1.0)[:, : self.labels]

    def forward(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        return self._values(a, self._columns(b), self.size[b])

    def bound(self, b: Int[Tensor, "R"]) -> PairSource:
        return _Bound(self, self._columns(b), self.size[b])

    def pairs_of(self, value: Float[Tensor, "B R"]) -> Pairs:
        pos = value >= self.threshold
        return Pairs(pos, ~pos, value)  # every pair is known

    def _columns(self, b: Int[Tensor, "R"]) -> Float[Tensor, "C1 R"]:
        """Return the reference as one row per label."""
        columns = torch.zeros(self.labels + 1, len(b), device=b.device).scatter_(0, self.lists[b].T, 1.0)
        columns[-1] = 0  # the label that fills up short lists
        return columns

    def _values(
        self, a: Int[Tensor, "B"], columns: Float[Tensor, "C1 R"], size: Float[Tensor, "R"]
    ) -> Float[Tensor, "B R"]:
        # Sum the columns of the labels of each anchor: B x R x labels per sample additions, and no tensor of that size.
        common = F.embedding_bag(self.lists[a], columns, mode="sum")
        if self.measure == "any":
            return (common > 0).float()
        sizes = self.size[a][:, None], size[None, :]
        return common / (torch.minimum(*sizes) if self.measure == "overlap" else sizes[0] + sizes[1] - common)


class _Bound:
    """A `SharedLabels` with its reference, whose multi-hot matrix is computed once."""

    def __init__(self, relevance: SharedLabels, columns: Tensor, size: Tensor):
        self.relevance, self.columns, self.size = relevance, columns, size

    def pairs(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Pairs:
        return self.relevance.pairs_of(self.relevance._values(a, self.columns, self.size))
