from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.argument_checks import Count
from likewise.core.contracts import Relevance, RelevanceInput
from likewise.core.types import Tuples
from likewise.data.relevance._named_samples import positions, read_named

TRIPLET_BLOCK = 4096
"""Triplets of every anchor that are looked up at a time: memory does not grow with the anchor that has the most."""


class JudgedTriplets(Relevance):
    """Judged triplets, from a file with the columns anchor, nearer and farther, for losses of triplets.

    Names are as in `ListedPairs`. In a batch, the triplets whose three samples are all in it are used. No pair is known by
    itself: what is near to one anchor may be far from another.

    Args:
        file: .csv or .parquet file with the columns anchor, nearer, farther.
        sample_names: names of the training samples; the run fills them in.
        per_anchor: largest number of triplets of a sample in a batch; of more, random ones are used.
        other_names: names of the other samples of the data; the run fills them in.
    """

    by: Literal["class", "sample"] = "sample"
    gives: tuple[RelevanceInput, ...] = ("triplets",)
    nearer: Int[Tensor, "T"]
    farther: Int[Tensor, "T"]
    start: Int[Tensor, "N"]
    count: Int[Tensor, "N"]

    def __init__(self, file: str, sample_names: Sequence[str], per_anchor: Count = 16, other_names: Sequence[str] = ()):
        super().__init__()
        self.file = file
        self.sample_names = sample_names
        self.per_anchor = per_anchor
        self.other_names = other_names
        self.ids = len(sample_names)
        sheet = read_named("JudgedTriplets", file)
        found, _, self.note = positions(sheet, ("anchor", "nearer", "farther"), sample_names, other_names)
        found = found[np.argsort(found[:, 0], kind="stable")].astype(np.int64)  # the triplets of an anchor are adjacent
        count = np.bincount(found[:, 0], minlength=self.ids)
        self.longest = int(count.max())
        self.register_buffer("nearer", torch.as_tensor(found[:, 1].copy()), persistent=False)
        self.register_buffer("farther", torch.as_tensor(found[:, 2].copy()), persistent=False)
        self.register_buffer("start", torch.as_tensor(np.cumsum(count) - count), persistent=False)
        self.register_buffer("count", torch.as_tensor(count), persistent=False)

    def forward(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        is_same = a[:, None] == b[None, :]
        return torch.ones(is_same.shape, device=a.device).masked_fill_(~is_same, math.nan)

    def triplets(self, y: Int[Tensor, "B"]) -> Tuples:
        """Return up to `per_anchor` judged triplets of every sample of the batch, whose other samples are in the batch, too."""
        size, place = len(y), torch.full((self.ids,), -1, device=y.device)
        place.scatter_reduce_(0, y, torch.arange(size, device=y.device), "amax")  # of a sample drawn twice, the last
        number = torch.arange(self.longest, device=y.device)
        look_up = self._present if self.longest <= self.per_anchor else self._drawn
        near, far, valid = look_up(y, place, number)
        anchor = torch.arange(size, device=y.device)[:, None].expand_as(valid)
        a, p, n, valid = (one.reshape(-1) for one in (anchor, near.clamp_min(0), far.clamp_min(0), valid))
        return Tuples(a=a, p=p, n=n, valid=valid, pull=torch.ones_like(valid))

    def _present(
        self, y: Int[Tensor, "B"], place: Int[Tensor, "N"], number: Int[Tensor, "L"]
    ) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
        """Return the places in the batch of the triplets with these numbers among those of every anchor, and which are valid."""
        at = (self.start[y][:, None] + number).clamp_max_(len(self.nearer) - 1)
        near, far = place[self.nearer[at]], place[self.farther[at]]
        return near, far, (number < self.count[y][:, None]) & (near >= 0) & (far >= 0)

    def _drawn(
        self, y: Int[Tensor, "B"], place: Int[Tensor, "N"], number: Int[Tensor, "L"]
    ) -> tuple[Int[Tensor, "B P"], Int[Tensor, "B P"], Bool[Tensor, "B P"]]:
        """Return `per_anchor` random ones of the triplets of `_present`, valid ones first: those of the highest random keys."""
        near, far = y.new_zeros(2, len(y), 0)
        key = torch.zeros(len(y), 0, device=y.device)
        for some in number.split(TRIPLET_BLOCK):
            *sides, valid = self._present(y, place, some)
            new = *sides, valid * (1 + torch.rand(valid.shape, device=y.device))
            both = [torch.cat(pair, 1) for pair in zip((near, far, key), new, strict=True)]
            chosen = both[2].topk(min(self.per_anchor, both[2].shape[1]), 1).indices
            near, far, key = (one.gather(1, chosen) for one in both)
        return near, far, key > 0

    def judged(self) -> Int[np.ndarray, "T 3"]:
        """Return the judged triplets as ids: anchor, nearer, farther."""
        anchor = torch.repeat_interleave(torch.arange(self.ids, device=self.count.device), self.count)
        return torch.stack([anchor, self.nearer, self.farther], 1).cpu().numpy()
