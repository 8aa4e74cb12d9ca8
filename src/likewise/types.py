"""Data classes that components exchange: Items, Batch, Output, Ref, Trust, Embedded, Retrieval and others.

Axes: B batch, R reference, N data set, Q query, K neighbour, D embedding, F feature, C class, T tuple.
Directions, fixed once: similarity high = near; metric high = good; label score low = suspect; influence high = harmful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise._notebook import embedded_html, items_html, scores_html, view
from likewise.errors import LikewiseError as LikewiseError  # every part raises it; found here with the nouns


@dataclass(frozen=True, eq=False)
class Items:
    """A data set as a table: one line a sample. Row numbers are positions in this table, for the life of a run.

    `y` are class numbers 0..C-1 and `class_name[y]` names the class. Optional columns are None where the data has none.
    """

    name: str
    y: Int[np.ndarray, "N"]
    class_name: tuple[str, ...]
    path: tuple[str, ...] | None = None  # image files; relative ones stand below `root`
    root: str = ""
    x: Float[np.ndarray, "N F"] | None = None  # features in place of images
    split: np.ndarray | None = None  # "train" | "val" | "test" | "" (nowhere), one a row
    query: Bool[np.ndarray, "N"] | None = None
    gallery: Bool[np.ndarray, "N"] | None = None
    gallery_name: np.ndarray | None = None  # which gallery a row is in, where there are several; "" = in none
    group: Int[np.ndarray, "N"] | None = None  # same camera or listing; -1 = in no group
    box: Float[np.ndarray, "N 4"] | None = None  # left, top, right, bottom in pixels; NaN = the whole picture
    weight: Float[np.ndarray, "N"] | None = None
    y_clean: Int[np.ndarray, "N"] | None = None  # the labels before noise was injected on purpose; never reaches a part
    taxonomy: dict[str, tuple[str, ...]] | None = None  # class name -> its ancestors, coarsest first

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Items('{self.name}', {len(self)} samples of {self.classes} classes)"

    @property
    def classes(self) -> int:
        return len(self.class_name)

    @property
    def y_first(self) -> Int[np.ndarray, "N"]:
        """The labels before any were spoiled on purpose. They decide who tests, so that noise does not move that cut."""
        return self.y if self.y_clean is None else self.y_clean

    _repr_html_ = view(items_html)


class Batch(NamedTuple):
    x: Float[Tensor, "B ..."]
    y: Int[Tensor, "B"]
    row: Int[Tensor, "B"]  # the sample's line in its items table, always carried


class Output(NamedTuple):
    z: Float[Tensor, "B D"]  # unit embedding
    e: Float[Tensor, "B D"]  # the embedding before the norm
    f: Float[Tensor, "B F"]  # pooled feature
    nodes: Float[Tensor, "B M d"] | None = None  # a head's parts, where it has them
    rec: Float[Tensor, "B M"] | None = None  # and their reconstruction errors


@dataclass(frozen=True, eq=False)
class Ref:
    """Whom the batch is compared with: a memory, other ranks, or the whole training set."""

    z: Float[Tensor, "R D"]
    y: Int[Tensor, "R"]
    own: Int[Tensor, "B"] | None = None  # where each sample of the batch itself stands among the R; -1 = nowhere
    used: Bool[Tensor, "R"] | None = None  # rows that hold a sample; the others are nobody's partner. None: all do
    live: int | None = None  # a hint: rows from here on need no gradient, so it need not be computed


@dataclass(frozen=True, eq=False)
class Pairs:
    """Whom each anchor is pulled to, and pushed from."""

    pos: Bool[Tensor, "B R"]
    neg: Bool[Tensor, "B R"]


@dataclass(frozen=True, eq=False)
class Tuples:
    """Triplets by index, a fixed number of them; `valid` marks the ones that exist.

    `pull=False`: the positive distance is exactly 0 (the rho switch). `one_each`: tuple t is that of anchor t, for all anchors.
    """

    a: Int[Tensor, "T"]
    p: Int[Tensor, "T"]
    n: Int[Tensor, "T"]
    valid: Bool[Tensor, "T"]
    pull: Bool[Tensor, "T"]
    one_each: bool = False


@dataclass(frozen=True, eq=False)
class SampleWeights:
    """How far each label of the batch is believed. What it was judged by is kept for the record alone.

    `w` times a sample's number is what it adds to the objective. `partner`: which samples others may be compared with and a
    memory may remember; None: all. `mean_over="kept"`: the mean runs over samples with w > 0, else over the whole batch.
    """

    w: Float[Tensor, "B"]
    partner: Bool[Tensor, "B"] | None = None
    mean_over: Literal["batch", "kept"] = "batch"
    suspicion: Float[Tensor, "B"] | None = None  # high = suspect, such as a loss
    threshold: Float[Tensor, ""] | None = None  # suspect from here on


@dataclass(frozen=True, eq=False)
class Relabelling:
    """The labels to train with from here on, one a training sample, and how far each is believed (0: leave it out).

    `suspicion` and `threshold` as in `Trust`; `facts` are numbers for the log.
    """

    y: Int[Tensor, "N"]
    w: Float[Tensor, "N"]
    suspicion: Float[Tensor, "N"] | None = None
    threshold: float | None = None
    facts: dict[str, float] = field(default_factory=dict)


class PeerView(NamedTuple):
    """What one of several networks in training makes of a batch."""

    z: Float[Tensor, "B D"]
    loss: Float[Tensor, "B"]
    prediction: Int[Tensor, "B"] | None  # the class its loss would name, where the loss has classes


@dataclass(frozen=True, eq=False)
class TrainingSetInfo:
    """What is known before the first step, for a term that works something out once.

    `pictures(transform)` gives the training samples in order, as (x, place) batches on the device: pictures through that
    transform (None: as evaluation sees them), or features. `folder` is where what was worked out can be kept.
    """

    labels: Int[np.ndarray, "N"]
    class_names: tuple[str, ...]
    pictures: Callable[[Callable | None], Iterator[tuple[Tensor, Tensor]]]
    folder: Path
    device: torch.device
    quiet: bool = False


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of some rows of a data set: the currency between stages."""

    z: Float[Tensor, "N D"]
    y: Int[Tensor, "N"]
    row: Int[Tensor, "N"]
    e: Float[Tensor, "N D"] | None = None
    f: Float[Tensor, "N F"] | None = None

    _repr_html_ = view(embedded_html)


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Ranked answers to queries; self and excluded rows are already gone. Ranks count from 1.

    `query` and `row` are positions among the embeddings that were ranked.
    `row`, `match` and `sim` show the first K answers (row -1: there is none). `hit_rank` holds the ranks of the relevant
    answers down to `depth[q]`, query after query (those of query q: `hit_rank[start[q]:start[q + 1]]`, ascending).
    """

    query: Int[Tensor, "Q"]
    row: Int[Tensor, "Q K"]
    match: Bool[Tensor, "Q K"]
    sim: Float[Tensor, "Q K"]
    relevant: Int[Tensor, "Q"]  # how many answers there are to find
    depth: Int[Tensor, "Q"]
    hit_rank: Int[Tensor, "H"]
    start: Int[Tensor, "Q1"]


@dataclass(frozen=True, eq=False)
class Scores:
    """Metric values per query; NaN where there is nothing to find. Means and intervals are derived."""

    each: dict[str, Float[np.ndarray, "Q"]]
    query: Int[np.ndarray, "Q"] = field(default_factory=lambda: np.zeros(0, np.int64))  # rows of the data
    label: Int[np.ndarray, "Q"] = field(default_factory=lambda: np.zeros(0, np.int64))

    _repr_html_ = view(scores_html)
