"""What a page tells of some runs: the nouns between who finds it out (the report stage) and who shows it (`page`).

Samples are known by their place in a `Pool`, classes by their number in it. What is None or empty is left out of the page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

from likewise.render.error_overlap import Overlapped


class Grouping(NamedTuple):
    """A level of the class tree: the group of every class, by which a map can be coloured."""

    name: str  # "order", "level 1"
    names: tuple[str, ...]
    of_class: Int[np.ndarray, "C"]  # -1: in none


@dataclass(frozen=True, eq=False)
class Pool:
    """The samples that runs were scored on. Runs of the same data share one."""

    name: str  # the data, in a word
    part: str  # "test"
    row: Int[np.ndarray, "N"]  # of the data
    label: Int[np.ndarray, "N"]
    class_name: tuple[str, ...]
    groupings: tuple[Grouping, ...] = ()
    caption: tuple[str, ...] | None = None  # of each sample: its file's name
    picture: dict[int, Image.Image] = field(default_factory=dict)  # by place; small, and not of all


class Score(NamedTuple):
    """A metric's mean as a share, NaN where undefined, its 95 % interval, and how it is written."""

    mean: float
    low: float | None
    high: float | None
    text: str  # "49.6 % (46.9 to 52.2)"


class Curve(NamedTuple):
    """Something that was logged while training. Curves of one `panel` are drawn together."""

    panel: str  # "loss", "validation", "learning rate", "labels", ...
    name: str
    step: list[int]
    value: list[float]


class Answer(NamedTuple):
    place: int
    similarity: float
    right: bool


class Asked(NamedTuple):
    """A query, how well it was answered, and its first answers."""

    place: int
    value: float  # the deciding metric's, such as MAP@R
    answers: tuple[Answer, ...]


class Confused(NamedTuple):
    """Queries of class `a` whose nearest neighbour is of class `b`: how many, and what share of the class they are."""

    a: int
    b: int
    count: int
    share: float
    example: tuple[int, int] | None = None  # places of one such query and of its answer


@dataclass(frozen=True, eq=False)
class Confusion:
    """Which classes are taken for which. `matrix[i, j]`: share of the queries of `classes[i]` answered by `classes[j]`; the
    classes are those confused most, similar ones side by side."""

    pairs: tuple[Confused, ...]  # the worst first
    classes: Int[np.ndarray, "M"]
    matrix: Float[np.ndarray, "M M"]


@dataclass(frozen=True, eq=False)
class Distances:
    """How similar two samples of a class are, and two of different ones: shares of pairs in each bin, summing to 1."""

    measure: str  # "cosine similarity" or "distance"
    edge: Float[np.ndarray, "E"]
    within: Float[np.ndarray, "bins"]
    between: Float[np.ndarray, "bins"]
    overlap: float  # the share that both have in common: 0 apart, 1 alike
    pairs: tuple[int, int]  # how many of each were counted


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of the embeddings, largest first, summing to 1, and how fast they fall."""

    value: Float[np.ndarray, "S"]
    rho: float


@dataclass(frozen=True, eq=False)
class Suspicion:
    """What labels were judged by after a pass: how many in each bin, right and wrong ones apart where that is known."""

    title: str  # "after the first pass, step 52"
    edge: Float[np.ndarray, "E"]
    right: Int[np.ndarray, "bins"]  # all of them, where `wrong` is None
    wrong: Int[np.ndarray, "bins"] | None
    weight: tuple[float | None, ...]  # mean weight in each bin
    threshold: float | None


@dataclass(frozen=True, eq=False)
class Detection:
    """Inspecting samples from the most suspect on: the share of wrong labels found by then."""

    name: str
    inspected: Float[np.ndarray, "P"]
    found: Float[np.ndarray, "P"]
    ap: float
    auroc: float


@dataclass(frozen=True, eq=False)
class Doubt:
    """A training label that was suspected, and what it would rather be ("": nothing else)."""

    row: int
    given: str
    suggested: str
    suspicion: float
    weight: float
    wrong: bool | None  # really, where that is known
    caption: str = ""
    picture: Image.Image | None = None


@dataclass(frozen=True, eq=False)
class Noise:
    """How far a training believed its labels, and how right it was where the truth is known.

    `transition[i, j]`: share of samples of the true class `classes[i]` that were given `classes[j]`; the classes are those with
    most wrong labels. `share` of the labels are really wrong.
    """

    model: str  # the noise that was injected, "" where none
    confidence: str  # "" where none
    share: float | None
    suspicion: tuple[Suspicion, ...] = ()
    detection: tuple[Detection, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    classes: tuple[str, ...] = ()
    transition: Float[np.ndarray, "M M"] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of classes by the similarity of their means: merges as scipy's linkage has them (two nodes, height, size), the
    leaves from left to right, and what they are coloured by."""

    link: Float[np.ndarray, "M 4"]
    classes: Int[np.ndarray, "L"]  # the class that leaf number i is
    order: Int[np.ndarray, "L"]  # leaf numbers, similar ones side by side
    grouping: int | None  # which of the pool's groupings
    note: str


@dataclass(frozen=True, eq=False)
class Viewed:
    """One run, or one file of embeddings."""

    name: str
    pool: int  # -1: it was not scored, so there is nothing but its training
    headline: str  # what it is, in one line
    settings: dict[str, str]
    scores: dict[str, Score]
    decides: str  # the metric that ranks queries
    curves: tuple[Curve, ...] = ()
    maps: dict[str, Float[np.ndarray, "N 2"]] = field(default_factory=dict)  # "PCA", "t-SNE": every sample of the pool
    near: Int[np.ndarray, "N K"] | None = None  # places of the nearest neighbours of every sample, -1: none
    near_sim: Float[np.ndarray, "N K"] | None = None  # cosine, or minus the distance
    galleries: dict[str, tuple[Asked, ...]] = field(default_factory=dict)  # "worst", "best", "random", "each class"
    confusion: Confusion | None = None
    distances: Distances | None = None
    spectrum: Spectrum | None = None
    noise: Noise | None = None
    tree: Tree | None = None
    notes: tuple[str, ...] = ()  # what must be said about it
    similarity: str = "cosine"  # or "euclidean"


class Compared(NamedTuple):
    """Two runs on the same queries, those that changed most first."""

    a: int
    b: int
    metric: str  # what queries are compared by
    verdict: str  # in a sentence
    queries: tuple[tuple[Asked, Asked], ...]


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything a page shows."""

    title: str
    runs: tuple[Viewed, ...]
    pools: tuple[Pool, ...]
    compared: tuple[Compared, ...] = ()
    overlap: Overlapped | None = None  # which classes each run is most wrong about
    notes: tuple[str, ...] = ()
    made: str = ""  # the version and the command
