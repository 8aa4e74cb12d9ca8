"""Supervision that is not one class per sample: the contract `Relevance`, which losses use in place of equal labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.types import LikewiseError, Pairs, Tuples

RelevanceInput = Literal["pairs", "targets", "triplets"]
"""What a relevance gives: values of pairs, targets for proxies, or judged triplets."""


class Relevance(nn.Module, ABC):
    """Defines which samples are relevant to each other where equal labels do not: (ids, ids) -> values from 0 to 1, by blocks.

    Ids are class numbers, or positions of training samples (`by`). All tensors are buffers that checkpoints leave out.
    """

    by: Literal["class", "sample"] = "class"
    """What the ids are, and so what a loss gets as `y`: classes, or positions among the training samples."""

    gives: tuple[RelevanceInput, ...] = ("pairs",)
    """What losses can use: "pairs" (`forward`), "targets" (`targets`), "triplets" (`triplets`)."""

    threshold: float = 0.5
    """A pair of this relevance or more is positive, another one negative."""

    ids: int
    """Number of ids; they count from 0."""

    symmetric: bool = True
    """Whether the relevance of a pair does not depend on the order of its ids."""

    note: str = ""
    """What the relevance ignores, one sentence for the user; "": nothing."""

    @abstractmethod
    def forward(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        """Return the relevance of every pair, 0 to 1; NaN: not known, so that the pair is neither positive nor negative."""

    def pairs(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Pairs:
        """Return the masks by the threshold, and the relevance with 0 in place of NaN."""
        value = self(a, b)
        return Pairs(value >= self.threshold, value < self.threshold, value.nan_to_num(0.0))

    def targets(self, y: Int[Tensor, "B"]) -> Float[Tensor, "B C"]:
        """Return the relevance of every sample to every proxy, 0 to 1. By default an error."""
        raise LikewiseError(f"{type(self).__name__}: has no targets for proxies; use a loss of pairs")

    @property
    def width(self) -> int | None:
        """Number of columns of `targets`, which is the number of proxies; None without targets."""
        return None

    def triplets(self, y: Int[Tensor, "B"]) -> Tuples:
        """Return the judged triplets among the samples of a batch. By default an error."""
        raise LikewiseError(f"{type(self).__name__}: has no judged triplets; use JudgedTriplets")
