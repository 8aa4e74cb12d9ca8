"""Classes whose scores are computed for a sample: all, or some candidates and drawn classes that stand for the rest.

With many classes, nearly all are impossible for a sample. Its candidates are the given class, the classes of its neighbours and
those with the nearest centres. Some random other classes stand for all the rest, so that probabilities still sum to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.block_executors import map_blocks

CANDIDATE_CLASSES_COUNT = 64
"""Number of candidate classes of a sample, its given class included."""

NEAREST_CENTRES_COUNT = 16
"""Number of candidates by nearest class centre; they come before the farthest neighbours' classes."""

MANY_CLASSES, DRAWN_CLASSES_COUNT, DRAWN_OF_MANY_COUNT = 4096, 64, 16
"""Number of random classes that stand for all classes that are no candidates: up to 4,096 classes, and with more.

On weak features (Omniglot, 1,623 classes, 10 % wrong), 16 changed 4 % of the flags beside the scores of all classes, 64 changed
2 %. Time and memory grow with the number of columns, 128 in place of 80."""

MAX_DENSE_CLASSES = 256
"""Number of classes up to which the scores of all classes cost as little as those of candidates, in every step."""

MAX_SCORED_CLASSES, MAX_DENSE_SCORES = 2048, 2**24
"""Number of classes, and of scores (samples x classes), up to which all classes have scores.

CPU seconds by all classes and by candidates: 31 and 22 with 13 million scores and 512 dimensions (1,623 classes), 19 and 5 with
6 million scores and 128 dimensions (1,100 classes). With 53 million scores and 512 dimensions, it would be 140 and 43."""

MAX_COLUMNS = CANDIDATE_CLASSES_COUNT + DRAWN_CLASSES_COUNT
"""Largest number of columns of a sample with candidates."""

COLUMN_BLOCK_ROWS = 4096
"""Number of samples whose candidates are chosen at a time."""


def scores_all_classes(samples: int, classes: int) -> bool:
    """Whether all classes have scores for every sample, not only candidates."""
    return classes <= MAX_DENSE_CLASSES or (classes <= MAX_SCORED_CLASSES and samples * classes <= MAX_DENSE_SCORES)


class Columns(NamedTuple):
    """Classes that the columns of a table of scores stand for."""

    label: Int[Tensor, "b W"]
    size: Float[Tensor, "b W"]  # logarithm of the number of classes that the column stands for; -inf: it is not used
    own: Int[Tensor, "b 1"]  # column of the given class

    @property
    def is_drawn(self) -> Bool[Tensor, "b W"]:
        """Whether a column stands for several classes."""
        return self.size > 0

    def of(self, rows: Tensor) -> Columns:
        """Return the columns of some of the samples."""
        return Columns(*(one[rows] for one in self))

    def gather(self, values: Float[Tensor, "C"]) -> Float[Tensor, "b W"]:
        """Return the log weight of every column: that of its class, plus the logarithm of the number of classes it stands for."""
        return values[self.label] + self.size.to(values)


@dataclass(frozen=True, eq=False)
class CandidateClasses:
    """Candidate classes of all samples, the given class first unless `own` says otherwise, and in the last columns drawn classes.

    `slot` is the column of the class of each neighbour; the number of columns: it is no candidate.
    """

    label: Int[Tensor, "N W"]  # -1: not used
    slot: Int[Tensor, "N k"]
    classes: int
    drawn: int
    own: Int[Tensor, "N"] | None = None  # column of the given class; None: the first

    @property
    def width(self) -> int:
        return self.label.shape[1]

    def columns(self, rows: Int[Tensor, "b"]) -> Columns:
        """Return the columns of some samples."""
        label = self.label[rows].long()
        used = label >= 0
        size = torch.where(used, 0.0, -torch.inf)
        if self.drawn:
            drawn = used[:, -self.drawn :]
            rest = self.classes - (used.sum(1) - drawn.sum(1))
            share = torch.log(rest / drawn.sum(1).clamp_min(1))[:, None]
            size[:, -self.drawn :] = torch.where(drawn, share, -torch.inf)
        own = torch.zeros_like(rows) if self.own is None else self.own[rows]
        return Columns(label.clamp_min(0), size, own[:, None])

    def narrowed(self, keep: Int[Tensor, "N t"]) -> CandidateClasses:
        """Return only some columns of every sample, the given class first."""
        new = torch.full((len(keep), self.width + 1), keep.shape[1], dtype=self.slot.dtype, device=keep.device)
        places = torch.arange(keep.shape[1], dtype=self.slot.dtype, device=keep.device)
        new.scatter_(1, keep, places.expand_as(keep))
        slot = torch.cat([new[some].gather(1, self.slot[some].long()) for some in _blocks(keep)])
        return CandidateClasses(self.label.gather(1, keep), slot, self.classes, 0)


def choose_candidates(
    y: Int[Tensor, "N"], near: Int[Tensor, "N k"], distance: Float[Tensor, "N k"], central: Int[Tensor, "N m"],
    classes: int, count: int = CANDIDATE_CLASSES_COUNT, seed: int = 0,
) -> CandidateClasses:  # fmt: skip
    """Return for every sample its given class, the classes of its neighbours, those of the nearest centres, and drawn ones.

    Args:
        y: given class of every sample.
        near: neighbours, the nearest first.
        distance: their distances; infinite: the neighbour has no vote.
        central: classes with the nearest centres.
        count: number of candidates.
        seed: of the drawn classes.
    """
    random = torch.Generator().manual_seed(seed)
    blocks = _blocks(near)
    width = DRAWN_CLASSES_COUNT if classes <= MANY_CLASSES else DRAWN_OF_MANY_COUNT
    drawn = [torch.randint(classes, (len(rows), width), generator=random) for rows in blocks]
    shared = {"y": y, "near": near, "distance": distance, "central": central, "count": count}
    label, slot = zip(*map_blocks(_choose_block, shared, list(zip(blocks, drawn, strict=True))), strict=True)
    return CandidateClasses(torch.cat(label), torch.cat(slot), classes, width)


def _choose_block(
    shared: Mapping[str, Any], block: tuple[Int[Tensor, "b"], Int[Tensor, "b d"]]
) -> tuple[Int[Tensor, "b W"], Int[Tensor, "b k"]]:
    """Return the candidates of some samples, and the columns of the classes of their neighbours. `block`: rows, drawn classes."""
    (rows, drawn), y, count = block, shared["y"], shared["count"]
    near, central = shared["near"][rows], shared["central"][rows]
    first, own = max(0, count - 1 - central.shape[1]), y[rows, None]
    given = y[near.long()]
    voted = torch.where(shared["distance"][rows].isfinite(), given, own)
    listed = torch.cat([own, voted[:, :first], central, voted[:, first:]], 1)
    order = repeats(listed).to(torch.uint8).argsort(dim=1, stable=True)[:, :count]
    listed = torch.cat([listed.gather(1, order), drawn.to(y.device)], 1)
    label = listed.masked_fill(repeats(listed), -1)
    return label.to(torch.int32), _slots(given, label, drawn.shape[1])


def shared_candidates(
    chosen: CandidateClasses, rows: Int[Tensor, "n"], number: Int[Tensor, "n"], y: Int[Tensor, "N"], near: Int[Tensor, "n k"]
) -> CandidateClasses:  # fmt: skip
    """Return candidates of some samples, the same for all samples of a group: those of the first one, and all given classes.

    Args:
        number: group of every sample, from 0.
    """
    groups = int(number.max()) + 1
    place = torch.arange(len(rows), device=rows.device)
    first = torch.full((groups,), len(rows), device=rows.device).scatter_reduce_(0, number, place, "amin")
    pair = (number * chosen.classes + y[rows]).unique()
    group, given = pair // chosen.classes, pair % chosen.classes
    size = torch.bincount(group, minlength=groups)
    rank = torch.arange(len(pair), device=rows.device) - (size.cumsum(0) - size)[group]
    base = chosen.label[rows[first]].long()
    more = base[:, :1].repeat(1, int(size.max()))
    more[group, rank] = given
    listed = torch.cat([more, base], 1)
    label = listed.masked_fill(repeats(listed), -1)[number]
    own = (label == y[rows, None]).to(torch.uint8).argmax(1)
    return CandidateClasses(
        label.to(torch.int32), _slots(y[near.long()], label, chosen.drawn), chosen.classes, chosen.drawn, own
    )


def _slots(voted: Int[Tensor, "b k"], label: Int[Tensor, "b W"], drawn: int) -> Int[Tensor, "b k"]:
    """Return the column of every neighbour's class; the number of columns if it is no candidate."""
    found = voted[:, :, None] == label[:, None, : label.shape[1] - drawn]
    return torch.where(found.any(2), found.to(torch.uint8).argmax(2), label.shape[1]).to(torch.int16)


def repeats(label: Int[Tensor, "b W"]) -> Tensor:
    """Return where a class stands in an earlier column of the same row, too."""
    return torch.tril(label[:, :, None] == label[:, None, :], -1).any(2)


def given_column(y: Int[Tensor, "b"], columns: Columns | None) -> Int[Tensor, "b 1"]:
    """Return the column of the given class of every sample."""
    return y[:, None] if columns is None else columns.own


def class_of(column: Int[Tensor, "b k"], columns: Columns | None) -> Int[Tensor, "b k"]:
    """Return the classes of some columns of every sample."""
    return column if columns is None else columns.label.gather(1, column)


def without_drawn(q: Float[Tensor, "b W"], columns: Columns | None) -> Float[Tensor, "b W"]:
    """Return the probabilities with 0 for drawn classes, which stand for others."""
    return q if columns is None else q.masked_fill(columns.is_drawn, 0)


def _blocks(rows: Tensor) -> tuple[Int[Tensor, "b"], ...]:
    return torch.arange(len(rows), device=rows.device).split(COLUMN_BLOCK_ROWS)
