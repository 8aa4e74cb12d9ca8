"""The labels of samples with several labels as lists, in place of a table of samples x labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.class_sums import CHUNK_ROWS

MIN_COLLECTED_ROWS = 2**16
"""Smallest number of rows that a collected column has room for."""


@dataclass(frozen=True, eq=False)
class GivenSets:
    """The labels of every sample, one after another; `given[rows]` is the table of some samples, 1 where a label was given."""

    label: Int[Tensor, "P"]  # labels of sample 0 in ascending order, then those of sample 1, ...
    size: Int[Tensor, "N"]  # number of labels of every sample
    labels: int

    def __len__(self) -> int:
        return len(self.size)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.size), self.labels

    @property
    def device(self) -> torch.device:
        return self.label.device

    @property
    def row(self) -> Int[Tensor, "P"]:
        """Sample of every given label."""
        return torch.arange(len(self.size), device=self.device).repeat_interleave(self.size)

    @property
    def count(self) -> Float[Tensor, "L"]:
        """Number of samples with every label."""
        return torch.bincount(self.label, minlength=self.labels).float()

    @property
    def sparse(self) -> Any:
        """Return the table as a sparse matrix."""
        from scipy.sparse import csr_matrix  # slow to import

        start = torch.cat([self.size.new_zeros(1), self.size.cumsum(0)]).cpu().numpy()
        one = torch.ones(len(self.label)).numpy()
        return csr_matrix((one, self.label.cpu().numpy(), start), self.shape)

    def __getitem__(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b L"]:
        some = self.of(rows)
        table = torch.zeros(some.shape, device=self.device)
        table[some.row, some.label] = 1
        return table

    def of(self, rows: Int[Tensor, "n"] | Bool[Tensor, "N"]) -> GivenSets:
        """Return the labels of some samples."""
        start, size = (self.size.cumsum(0) - self.size)[rows], self.size[rows]
        first = (start - size.cumsum(0) + size).repeat_interleave(size)
        return GivenSets(self.label[first + torch.arange(len(first), device=self.device)], size, self.labels)

    def to(self, device: torch.device) -> GivenSets:
        """Return the labels on a device."""
        return GivenSets(self.label.to(device), self.size.to(device), self.labels)

    def used(self) -> GivenSets:
        """Return the labels without those that no sample has, numbered again."""
        names, label = self.label.unique(return_inverse=True)
        return GivenSets(label, self.size, len(names))

    def sums(self, x: Float[Tensor, "N F"]) -> Float[Tensor, "L F"]:
        """Return the sum of the features of the samples with every label."""
        total, row = x.new_zeros(self.labels, x.shape[1]), self.row
        for some in torch.arange(len(row), device=self.device).split(CHUNK_ROWS):
            total.index_add_(0, self.label[some], x[row[some]])
        return total


class Collected:
    """Columns that grow block by block in a few large tensors: many small ones between large blocks would fragment the memory."""

    def __init__(self) -> None:
        self.columns: list[Tensor] = []
        self.size = 0

    def add(self, *columns: Tensor) -> None:
        """Add rows to all columns."""
        end = self.size + len(columns[0])
        if not self.columns or end > len(self.columns[0]):
            room = max(2 * end, MIN_COLLECTED_ROWS)
            grown = [one.new_empty(room, *one.shape[1:]) for one in columns]
            for new, old in zip(grown, self.columns):
                new[: self.size] = old[: self.size]
            self.columns = grown
        for all_rows, one in zip(self.columns, columns, strict=True):
            all_rows[self.size : end] = one
        self.size = end

    def all(self) -> list[Tensor]:
        """Return the columns."""
        return [one[: self.size].clone() for one in self.columns]


def given_sets(has: Bool[Tensor, "N L"]) -> GivenSets:
    """Return the labels of samples as lists, from a table of samples x labels."""
    return GivenSets(has.nonzero()[:, 1], has.sum(1), has.shape[1])


def label_counts(has: Tensor | GivenSets) -> Float[Tensor, "L"]:
    """Return the number of samples with every label."""
    return has.count if isinstance(has, GivenSets) else has.sum(0)


def set_numbers(has: Tensor | GivenSets) -> Int[Tensor, "N"]:
    """Return a number for the label set of every sample, the same for equal sets."""
    if not isinstance(has, GivenSets):
        return has.unique(dim=0, return_inverse=True)[1]
    number: dict[tuple[int, ...], int] = {}
    sets = (tuple(one.tolist()) for one in has.label.cpu().split(has.size.tolist()))
    return torch.tensor([number.setdefault(one, len(number)) for one in sets], device=has.device)
