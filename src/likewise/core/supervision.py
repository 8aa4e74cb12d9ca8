"""Supervision that is not one class per sample: the contract `Relevance`, which losses use in place of equal labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.argument_checks import CheckedArguments
from likewise.core.types import LikewiseError, Pairs, PairSource, Tuples

RelevanceInput = Literal["pairs", "targets", "triplets"]
"""What a relevance gives: values of pairs, targets for proxies, or judged triplets."""


RELATED_BLOCK = 2**22
"""Pairs that `Relevance.related` computes at a time."""


class Relevance(nn.Module, CheckedArguments, ABC):
    """Which samples are relevant to each other, in place of equal labels: (ids, ids) -> values from 0 to 1, block by block.

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

    row_bytes: int = 0
    """Bytes of working memory for each id of the reference, besides the values of its pairs."""

    note: str = ""
    """What the relevance ignores, one sentence for the user; "": nothing."""

    @abstractmethod
    def forward(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        """Return the relevance of every pair, 0 to 1; NaN: not known, so that the pair is neither positive nor negative."""

    def pairs(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Pairs:
        """Return the masks by the threshold, and the relevance with 0 in place of NaN."""
        return self.pairs_of(self(a, b))

    def pairs_of(self, value: Float[Tensor, "B R"]) -> Pairs:
        """Return the masks and the relevance, given all values."""
        return Pairs(value >= self.threshold, value < self.threshold, value.nan_to_num(0.0))

    def bound(self, b: Int[Tensor, "R"]) -> PairSource:
        """Return a source of pairs with this reference, for a loss that needs them block by block.

        A relevance that computes something from the reference overrides this, to do it once.
        """
        return self

    @torch.no_grad()
    def related(self) -> tuple[Int[np.ndarray, "I1"], Int[np.ndarray, "M"]]:
        """Return the ids that are relevant to each id, itself left out: those of id i are `found[start[i] : start[i + 1]]`.

        This computes all pairs, block by block. A relevance that has lists of pairs overrides it.
        """
        device = next((t.device for t in self.buffers()), torch.device("cpu"))
        every = torch.arange(self.ids, device=device)
        source, counts, found = self.bound(every), [], []
        for block in every.split(max(1, RELATED_BLOCK // self.ids)):
            pos = source.pairs(block, every).pos
            pos[torch.arange(len(block), device=device), block] = False
            counts.append(pos.sum(1).cpu())
            found.append(pos.nonzero()[:, 1].cpu())
        start = np.concatenate([[0], torch.cat(counts).cumsum(0).numpy()])
        return start.astype(np.int64), torch.cat(found).numpy()

    def judged(self) -> Int[np.ndarray, "T 3"] | None:
        """Return all judged triplets as ids (anchor, nearer, farther), for samplers and evaluation; None: there are none."""
        return None

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


def check_inputs(owner: str, inputs: tuple[RelevanceInput, ...], classes: int | None, relevance: Relevance) -> None:
    """Raise unless a relevance gives what a loss can use.

    Args:
        owner: name of the loss, for the error.
        inputs: `Loss.relevance_inputs`.
        classes: number of proxies of the loss; None: it has none.
    """
    name = type(relevance).__name__
    if not set(inputs) & set(relevance.gives):
        needs = f"uses {' or '.join(inputs)}" if inputs else "needs single labels"
        raise LikewiseError(
            f"{owner}: {name} gives {', '.join(relevance.gives)}, but this loss {needs}; see the table of losses in "
            "docs/relevance.md"
        )
    if "targets" in inputs and classes != relevance.width:
        raise LikewiseError(
            f"{owner}: it must have a proxy for each of the {relevance.width} targets of {name}, got classes={classes}; build it "
            f"with classes={relevance.width}"
        )
