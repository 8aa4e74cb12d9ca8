"""Records that the report's modules share. A record of one section alone is in the module of that section.

Samples are known by their place in a `Pool`, classes by their number in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from PIL import Image


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


class Answer(NamedTuple):
    place: int
    similarity: float
    right: bool


class Asked(NamedTuple):
    """A query, how well it was answered, and its first answers."""

    place: int
    value: float  # the deciding metric's, such as MAP@R
    answers: tuple[Answer, ...]


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
class Viewed:
    """One run, or one file of embeddings. `found` holds what each section shows of it, by the section's name."""

    name: str
    pool: int  # -1: it was not scored, so there is nothing but its training
    headline: str  # what it is, in one line
    settings: dict[str, str]
    scores: dict[str, Score]
    decides: str  # the metric that ranks queries
    found: dict[str, Any] = field(default_factory=dict)
    near: Int[np.ndarray, "N K"] | None = None  # places of the nearest neighbours of every sample, -1: none
    near_sim: Float[np.ndarray, "N K"] | None = None  # cosine, or minus the distance
    notes: tuple[str, ...] = ()  # what must be said about it
    similarity: str = "cosine"  # or "euclidean"


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything a page shows. `found` holds what sections show of all runs together, by the section's name."""

    title: str
    runs: tuple[Viewed, ...]
    pools: tuple[Pool, ...]
    found: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    made: str = ""  # the version and the command
