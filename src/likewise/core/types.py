"""Data classes that components exchange: Items, Batch, Output, Ref, SampleWeights, Embedded, Retrieval and others.

Axis names in shapes: B batch, R reference, N data set, Q query, K neighbour, D embedding, F feature, C class, T triplet.
Directions: high similarity = near; high metric = good; low label score = probably wrong label; high influence = harmful.
The words of this file are explained in docs/glossary.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError as LikewiseError  # re-exported: most components import it from here
from likewise.core.notebook import embedded_html, items_html, scores_html, view
from likewise.core.vectors import Vectors


@dataclass(frozen=True, eq=False)
class Items:
    """A data set as a table with one row per sample. Row numbers are positions in this table and never change during a run.

    `y` holds the class number of every sample, 0..C-1; `class_name[y]` is the name of that class. If samples have several labels
    each, a class is a distinct set of labels: `label_sets[y]` are the numbers of its labels, `label_name` their names, and
    `class_name` joins them: "dress|red". An optional column is None if the data set does not have it.
    """

    name: str
    y: Int[np.ndarray, "N"]
    class_name: tuple[str, ...]
    path: tuple[str, ...] | None = None  # image files; relative paths start at `root`
    root: str = ""
    x: Float[np.ndarray, "N F"] | Vectors | None = None  # features in place of images; `Vectors` are on disk
    split: np.ndarray | None = None  # "train" | "val" | "test" | "" (in no split), for every row
    query: Bool[np.ndarray, "N"] | None = None  # whether a row is a query
    gallery: Bool[np.ndarray, "N"] | None = None  # whether a row is in a gallery
    gallery_name: np.ndarray | None = None  # gallery of a row, if there are several; "" = in no gallery
    group: Int[np.ndarray, "N"] | None = None  # number of the source, such as a listing or burst; -1 = in no group
    camera: np.ndarray | None = None  # name of the camera; "" = not known. See `score.retrieve.hidden_groups`
    junk: Bool[np.ndarray, "N"] | None = None  # True: in no split, neither right nor wrong for any query
    box: Float[np.ndarray, "N 4"] | None = None  # left, top, right, bottom in pixels; NaN = the whole image
    weight: Float[np.ndarray, "N"] | None = None  # sample weight that the data set gives
    y_clean: Int[np.ndarray, "N"] | None = None  # true labels, if noise was injected; components never get them
    taxonomy: dict[str, tuple[str, ...]] | None = None  # class name -> its ancestors, coarsest first
    class_words: dict[str, str] | None = None  # class name -> words for a text encoder, if the names are numbers
    label_name: tuple[str, ...] | None = None  # names of the single labels, if samples have several labels each
    label_sets: tuple[tuple[int, ...], ...] | None = None  # label numbers of every class, ascending, at least one
    votes: np.ndarray | None = None  # votes of workers as text, such as "anna:cat|ben:dog"; see `data.votes`
    skipped: tuple[tuple[int, str], ...] = ()  # (row, path) in the complete table of images that cannot be decoded
    notes: tuple[str, ...] = ()  # what the reader ignored, one sentence each
    left_out: tuple[tuple[str, str], ...] = ()  # path and reason of links and folders that the reader could not use

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        several = "" if self.label_name is None else f", sets of {len(self.label_name)} labels"
        return f"Items('{self.name}', {len(self)} samples of {self.classes} classes{several})"

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_name)

    @property
    def y_before_noise(self) -> Int[np.ndarray, "N"]:
        """Labels before noise was injected. Splits are computed from these, so that injected noise does not move rows."""
        return self.y if self.y_clean is None else self.y_clean

    _repr_html_ = view(items_html)


ROW_COLUMNS = (
    "path", "x", "split", "query", "gallery", "gallery_name", "group", "camera", "junk", "box", "weight", "y_clean",
    "votes",
)  # fmt: skip
"""Optional columns of `Items` with one entry per row."""


class Votes(NamedTuple):
    """Labels that several workers gave to samples: one entry per vote, in any order."""

    row: Int[np.ndarray, "V"]  # row of the sample
    worker: Int[np.ndarray, "V"]  # number of the worker; -1 = not known
    label: Int[np.ndarray, "V"]  # class number
    worker_name: tuple[str, ...]

    def among(self, rows: Int[np.ndarray, "n"]) -> Votes:
        """Return the votes about some rows, which are numbered from 0 in the order given."""
        place = np.full(max(int(self.row.max(initial=-1)), int(rows.max(initial=-1))) + 1, -1)
        place[rows] = np.arange(len(rows))
        kept = place[self.row] >= 0
        return Votes(place[self.row[kept]], self.worker[kept], self.label[kept], self.worker_name)

    def completed(self, y: Int[np.ndarray, "N"]) -> Votes:
        """Return the votes with the given label as the vote of an unknown worker for every sample without votes."""
        without = np.setdiff1d(np.arange(len(y)), self.row)
        return Votes(
            np.concatenate([self.row, without]), np.concatenate([self.worker, np.full(len(without), -1)]),
            np.concatenate([self.label, y[without]]), self.worker_name,
        )  # fmt: skip


class Batch(NamedTuple):
    """Samples of one training step."""

    x: Float[Tensor, "B ..."]  # images, or feature vectors
    y: Int[Tensor, "B"]  # labels
    row: Int[Tensor, "B"]  # row of each sample in its `Items`
    group: Int[Tensor, "B"] | None = None  # `BatchSampler.groups` of each sample; None: the sampler has none


class Output(NamedTuple):
    """Output of the network for a batch."""

    z: Float[Tensor, "B D"]  # embedding of unit length
    e: Float[Tensor, "B D"]  # raw embedding, before it is divided by its length
    f: Float[Tensor, "B F"]  # pooled feature of the backbone
    nodes: Float[Tensor, "B M d"] | None = None  # M sub-embeddings of a head that has them
    rec: Float[Tensor, "B M"] | None = None  # costs of the M sub-embeddings, such as reconstruction errors


@dataclass(frozen=True, eq=False)
class Ref:
    """Reference samples that a loss compares the batch with: a memory, samples of other processes, or the training set."""

    z: Float[Tensor, "R D"]  # embeddings of the reference
    y: Int[Tensor, "R"]  # labels of the reference
    own: Int[Tensor, "B"] | None = None  # reference row of each batch sample itself; -1 = not in the reference
    used: Bool[Tensor, "R"] | None = None  # reference rows that may be positives or negatives; None: all rows
    live: int | None = (
        None  # rows from this index on need no gradient, so a loss may skip computing it; None: all need it
    )


@dataclass(frozen=True, eq=False)
class Pairs:
    """Masks of the positives and of the negatives of every anchor. A pair in no mask is not known, or a sample with itself."""

    pos: Bool[Tensor, "B R"]  # row: anchor; column: reference row
    neg: Bool[Tensor, "B R"]
    value: Float[Tensor, "B R"] | None = None  # relevance of each pair, 0 to 1; None: 1 for positives, 0 for negatives


@dataclass(frozen=True, eq=False)
class Tuples:
    """Triplets as indices. T does not depend on the values, so that a GPU need not wait; `valid` marks the real triplets."""

    a: Int[Tensor, "T"]  # anchor: row of the batch
    p: Int[Tensor, "T"]  # positive: row of the reference
    n: Int[Tensor, "T"]  # negative: row of the reference
    valid: Bool[Tensor, "T"]  # False: the loss ignores this triplet
    pull: Bool[Tensor, "T"]  # False: the loss takes 0 as the positive distance (the rho switch of `miners.Switch`)
    one_each: bool = False  # True: there is one triplet per anchor, in order (a = 0..B-1)


@runtime_checkable
class PairSource(Protocol):
    """Where masks of pairs come from if they do not follow from equal labels: a `contracts.Relevance`."""

    def pairs(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Pairs:
        """Return the masks and the relevance of all pairs of two lists of ids, a sample with itself among them."""
        ...


@dataclass(frozen=True, eq=False)
class SampleWeights:
    """Sample weights of a batch, as a confidence computes them. `suspicion` and `threshold` are only logged."""

    w: Float[Tensor, "B"]  # factor of each sample's loss in the objective, 0 to 1
    partner: Bool[Tensor, "B"] | None = (
        None  # samples that others may be compared with and a memory may store; None: all
    )
    mean_over: Literal["batch", "kept"] = (
        "batch"  # the objective is the mean over the batch, or over samples with w > 0
    )
    suspicion: Float[Tensor, "B"] | None = None  # high = probably wrong label; the loss of the sample, for example
    threshold: Float[Tensor, ""] | None = None  # a label of this suspicion or more is flagged


@dataclass(frozen=True, eq=False)
class Relabelling:
    """Labels and sample weights of the whole training set, in effect until the next relabelling round."""

    y: Int[Tensor, "N"]  # labels to train with
    w: Float[Tensor, "N"]  # sample weights, 0 to 1; 0 drops the sample
    suspicion: Float[Tensor, "N"] | None = None  # high = probably wrong label
    threshold: float | None = None  # a label of this suspicion or more is flagged
    facts: dict[str, float] = field(default_factory=dict)  # name -> value, for the log


class PeerView(NamedTuple):
    """Output for a batch of one of several networks that are trained together."""

    z: Float[Tensor, "B D"]  # embeddings
    loss: Float[Tensor, "B"]  # unweighted loss of every sample
    prediction: Int[Tensor, "B"] | None  # class that `Loss.predict` returns; None if the loss has no classes


@dataclass(frozen=True, eq=False)
class TrainingSetInfo:
    """The training set, for a term that computes something once before the first step (`Term.prepare`).

    `pictures(transform)` yields the training samples in order, as batches (x, position) on the device: x are the images under
    that transform (None: the transform of evaluation), or feature vectors; `position` counts the training samples from 0.
    """

    labels: Int[np.ndarray, "N"]
    class_names: tuple[str, ...]
    pictures: Callable[[Callable | None], Iterator[tuple[Tensor, Tensor]]]
    folder: Path  # of the run; a term may store its results here
    device: torch.device
    quiet: bool = False  # True: no progress bar
    class_words: dict[str, str] | None = None  # class name -> words for a text encoder, if the names are numbers


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of some rows of a data set, with their labels."""

    z: Float[Tensor, "N D"]  # embeddings of unit length
    y: Int[Tensor, "N"]  # labels
    row: Int[Tensor, "N"]  # rows in the data set
    e: Float[Tensor, "N D"] | None = None  # raw embeddings
    f: Float[Tensor, "N F"] | None = None  # pooled features

    _repr_html_ = view(embedded_html)


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Ranked gallery rows of every query, without the query itself and without excluded rows. Ranks count from 1.

    `query` and `row` are positions among the embeddings that were ranked, not rows of the data set. `hit_rank` is a flat list:
    the ranks of the relevant rows of query q, ascending and down to `depth[q]`, are `hit_rank[start[q]:start[q + 1]]`.
    """

    query: Int[Tensor, "Q"]
    row: Int[Tensor, "Q K"]  # the K nearest gallery rows; -1 = fewer than K
    match: Bool[Tensor, "Q K"]  # whether the row is relevant
    sim: Float[Tensor, "Q K"]  # similarity of the row to the query
    relevant: Int[Tensor, "Q"]  # number of relevant rows in the gallery
    depth: Int[Tensor, "Q"]  # rank down to which `hit_rank` is complete
    hit_rank: Int[Tensor, "H"]
    start: Int[Tensor, "Q1"]
    hit_row: Int[Tensor, "H"] | None = None  # gallery row of each hit, if `rank` was given the labels of levels
    relevant_at: Int[Tensor, "Q L"] | None = None  # number of relevant gallery rows on each of these levels
    value: Float[Tensor, "Q K"] | None = None  # graded relevance of the K rows, 0 to 1; NaN = no row
    best: Float[Tensor, "Q G"] | None = None  # highest relevances in the gallery of the query, descending
    hit_value: Float[Tensor, "H"] | None = None  # graded relevance of each hit
    agreement: Float[Tensor, "Q"] | None = None  # share of the judged triplets of the query that hold; NaN = none


@dataclass(frozen=True, eq=False)
class TreeRetrieval:
    """The first K results of every query in the class tree. Depth 0 is the root, the lowest node above all classes."""

    shared: Int[Tensor, "Q K"]  # depth of the lowest common ancestor of query and result; -1 = no result
    depth: Int[Tensor, "Q"]  # depth of the query's own class
    height: Int[Tensor, "Q S"]  # height of the query's ancestor at depth 0, 1, ...; 0 from its own class on
    related: Int[Tensor, "Q S"]  # gallery rows below the query's ancestor at depth 0, 1, ...; 0 below its own class


@dataclass(frozen=True, eq=False)
class Scores:
    """Values of every metric for every query. Means and intervals are computed from these."""

    each: dict[str, Float[np.ndarray, "Q"]]  # metric name -> values; NaN for a query without relevant rows
    query: Int[np.ndarray, "Q"] = field(default_factory=lambda: np.zeros(0, np.int64))  # rows of the data set
    label: Int[np.ndarray, "Q"] = field(default_factory=lambda: np.zeros(0, np.int64))  # labels of the queries
    rival: Int[np.ndarray, "Q"] | None = None  # label of the nearest wrong result; -1: the results stored are right
    relevance: dict | None = None  # what is relevant, as in scores.json; None: rows of the query's class

    _repr_html_ = view(scores_html)
