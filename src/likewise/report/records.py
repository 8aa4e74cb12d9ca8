"""Records that several modules of the report use. The record of a single section is in the module of that section.

A place is the index of a sample in its `Pool`; a class is the index of its name in the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

PairRelevance = Callable[[int, Int[np.ndarray, "n"]], Float[np.ndarray, "n"]]
"""A class and the classes of some results -> the relevance of each result, 0 to 1; NaN: not known."""


class Grouping(NamedTuple):
    """One level of a taxonomy: the group of every class. The map can be coloured by it."""

    name: str  # "order", "level 1"
    names: tuple[str, ...]
    of_class: Int[np.ndarray, "C"]  # -1: no group


@dataclass(frozen=True, eq=False)
class Pool:
    """The samples that runs were scored on. Runs with the same samples, queries and gallery share a pool."""

    name: str  # of the data set
    split: str  # "test"
    row: Int[np.ndarray, "N"]  # in the data set
    label: Int[np.ndarray, "N"]
    class_name: tuple[str, ...]
    groupings: tuple[Grouping, ...] = ()
    caption: tuple[str, ...] | None = None  # file name of each sample
    images: dict[int, Image.Image] = field(default_factory=dict)  # place -> thumbnail, for some of the samples
    label_name: tuple[str, ...] | None = None  # of the single labels, if samples have several labels each
    label_sets: tuple[tuple[int, ...], ...] | None = None  # label numbers of every class


class Score(NamedTuple):
    """The mean of a metric (NaN: undefined), its 95 % interval (None: there is none), both as text, and why there is none."""

    mean: float
    low: float | None
    high: float | None
    text: str  # "49.6 % (46.9 to 52.2)"
    reason: str = ""
    corrected: str = ""  # the same for the score under the true labels; "": not estimated


class Neighbour(NamedTuple):
    """A neighbour of a query; `right`: it has the label, or one of the labels, of the query.

    `relevance`: 0 to 1; None: right or wrong is all.
    """

    place: int
    similarity: float
    right: bool
    relevance: float | None = None


class RankedQuery(NamedTuple):
    """A query, its value of the main metric, and its nearest neighbours."""

    place: int
    value: float  # of the main metric, such as MAP@R
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True, eq=False)
class SuspicionHistogram:
    """Histogram of the suspicion of labels after an epoch, for right and wrong labels separately if the true labels are known."""

    title: str  # "after the first epoch, step 52"
    edge: Float[np.ndarray, "E"]
    right: Int[np.ndarray, "bins"]  # all labels if `wrong` is None
    wrong: Int[np.ndarray, "bins"] | None
    weight: tuple[float | None, ...]  # mean sample weight in each bin
    threshold: float | None


@dataclass(frozen=True, eq=False)
class Detection:
    """Detection curve: share of the wrong labels found against the share of samples inspected, most suspect first."""

    name: str
    inspected: Float[np.ndarray, "P"]
    found: Float[np.ndarray, "P"]
    ap: float
    auroc: float


@dataclass(frozen=True, eq=False)
class FlaggedLabel:
    """A training label with a high suspicion, and the suggested label ("": none)."""

    row: int
    given: str
    suggested: str
    suspicion: float
    weight: float
    wrong: bool | None  # None: the true label is unknown
    caption: str = ""
    image: Image.Image | None = None


@dataclass(frozen=True, eq=False)
class LabelNoise:
    """The label noise of a run: suspicion, detection of wrong labels, and flagged labels.

    `transition[i, j]`: share of the samples of true class `classes[i]` with the given label `classes[j]`, for the classes
    with the most wrong labels. `share` is the noise rate; None if the true labels are unknown.
    """

    model: str  # the noise model that injected wrong labels; "": none
    confidence: str  # "": none
    share: float | None
    suspicion: tuple[SuspicionHistogram, ...] = ()
    detection: tuple[Detection, ...] = ()
    flagged: tuple[FlaggedLabel, ...] = ()
    classes: tuple[str, ...] = ()
    transition: Float[np.ndarray, "M M"] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class RunView:
    """All data of one run, or of one embedding file, on the page. `found` maps the name of a section to its data."""

    name: str
    pool: int  # -1: it was not scored, so the page shows only its training
    headline: str  # one line: loss, confidence, data
    settings: dict[str, str]
    scores: dict[str, Score]
    main_metric: str  # the metric that orders queries
    found: dict[str, Any] = field(default_factory=dict)
    near: Int[np.ndarray, "N K"] | None = None  # places of the nearest neighbours of every sample; -1: none
    near_sim: Float[np.ndarray, "N K"] | None = None  # cosine, or the negative distance
    notes: tuple[str, ...] = ()  # limitations of the data, for the section "Notes"
    similarity: str = "cosine"  # or "euclidean"
    before: dict[str, Score] = field(default_factory=dict)  # scores of the network before training, if they are known
    facts: tuple[str, ...] = ()  # when and how long it trained, and the size of the test
    suspects: dict[int, str] = field(default_factory=dict)  # place of a label that the audit flagged -> suggested label


@dataclass(frozen=True, eq=False)
class Facts:
    """All data of a page. `found` maps the name of a section to its data about all runs together."""

    title: str
    runs: tuple[RunView, ...]
    pools: tuple[Pool, ...]
    found: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    made: str = ""  # version and command that made the page
