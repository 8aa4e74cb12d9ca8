"""What sections of the page receive and return: records of runs, samples and scores, and the contract of a section.

A place is the index of a sample in its `Pool`; a class is the index of its name in the pool.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from PIL import Image
from torch import Tensor

from likewise.core.settings import Report, Train
from likewise.core.types import Items
from likewise.report import sections
from likewise.runs.folder import Run
from likewise.runs.scores import PerQuery

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
    sample: tuple[str, ...] = ()  # sentences about the sample of queries that the scores are estimated from
    drawn: str = ""  # "20,000 random queries of 1,000,000"; "": all queries


@dataclass(frozen=True, eq=False)
class Facts:
    """All data of a page. `found` maps the name of a section to its data about all runs together."""

    title: str
    runs: tuple[RunView, ...]
    pools: tuple[Pool, ...]
    found: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    made: str = ""  # version and command that made the page


@dataclass(frozen=True, eq=False)
class ReportTarget:
    """A run or an embedding file. Fields are None or empty if the target does not have them.

    `items` are the samples that it was scored on, with their embeddings in `x` if these are known; `row` holds their rows in
    the data set. `data` is the whole data set, if it can still be opened. `split` is the name of the split of `items`.
    """

    name: str
    run: Run | None = None
    settings: Train | None = None
    data: Items | None = None
    items: Items | None = None
    row: Int[np.ndarray, "N"] | None = None
    split: str = "test"
    similarity: str = "cosine"
    queries: PerQuery | None = None
    scores: dict = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def query_gallery(self) -> tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
        """Masks of the samples that are queries, and of those in the gallery."""
        from likewise.data.dataset import protocol_for

        assert self.items is not None
        return protocol_for(self.items).query_gallery(self.items, np.arange(len(self.items)))


@dataclass(frozen=True, eq=False)
class Study:
    """One target with the data that several sections use. A section may append to `notes`.

    Without scores, `pool`, `near`, `near_sim` and `z` are None. Without embeddings, only `z` is None. The rows of `z` have unit
    length if the similarity is cosine. `relevance` is None if results are right or wrong.
    """

    one: ReportTarget
    config: Report
    log: Sequence[dict]
    main_metric: str
    notes: list[str]
    pool: Pool | None = None
    z: Float[Tensor, "N D"] | None = None
    near: Int[np.ndarray, "N K"] | None = None
    near_sim: Float[np.ndarray, "N K"] | None = None
    relevance: PairRelevance | None = None

    @property
    def queries(self) -> tuple[Int[np.ndarray, "Q"], Float[np.ndarray, "Q"]] | None:
        """Places of the queries, and values of the main metric (NaN without relevant rows); None if the run has no scores."""
        if self.pool is None or self.one.queries is None or self.one.row is None:
            return None
        return places_of(self.one.queries.row, self.one.row), self.one.queries.each[self.main_metric]


@dataclass(frozen=True, eq=False)
class Studies:
    """All runs of a page, without their embeddings. A section may append to `notes`."""

    targets: Sequence[ReportTarget]
    views: Sequence[RunView]
    pools: Sequence[Pool]
    config: Report
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Packing:
    """The page that a value is packed for, the run if it is a value of one run, and the images of the page so far."""

    facts: Facts
    run: RunView | None = None
    images: list[Image.Image] = field(default_factory=list)

    @property
    def pool(self) -> Pool | None:
        """The pool of the run; None for a value of the whole page or a run that was not scored."""
        return self.facts.pools[self.run.pool] if self.run is not None and self.run.pool >= 0 else None

    def add_image(self, image: Image.Image) -> int:
        """Add an image that is in no pool to the page, and return its index."""
        self.images.append(image)
        return len(self.images) - 1


class Block(NamedTuple):
    """One script element with data: its id, its media type, and its text, which is safe inside a script element."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page: its texts, and the functions that compute and convert its data.

    Args:
        name: anchor in the page, key of its values in `RunView.found` and `Facts.found`, and key of its data in the page.
        link: text of its link in the table of contents.
        title: heading.
        intro: sentence below the heading.
        of_run: computes the data of one run. An empty value is not shown.
        of_page: computes the data of all runs together. An empty value is not shown.
        pack: converts the value for JSON; None: unchanged. Dataclasses, arrays and tuples are converted later.
        is_first: whether the data is in the block `facts`, which the page reads at once, instead of the block `more`.
        blocks: yields large arrays, one block for each.
        shown_if: returns whether the page has the section; None: if `of_run`, `of_page` or `context` returned a value.
        template: HTML below the heading, in place of a script that draws the section.
        context: computes the variable `content` of the template.
        folded: whether it is at the end of the page, under "More", because few readers need it.
        words: returns another title and introduction for these facts, or None.
        scripts: names of its scripts, in order, if there are several; the last one calls `fillSection`.
    """

    name: str
    link: str
    title: str
    intro: str = ""
    of_run: Callable[[Study], Any] | None = None
    of_page: Callable[[Studies], Any] | None = None
    pack: Callable[[Any, Packing], Any] | None = None
    is_first: bool = False
    blocks: Callable[[Facts], Iterator[Block]] | None = None
    shown_if: Callable[[Facts], bool] | None = None
    template: str = ""
    context: Callable[[Facts], Any] | None = None
    scripts: tuple[str, ...] = ()
    folded: bool = False
    words: Callable[[Facts], tuple[str, str] | None] | None = None

    def worded(self, facts: Facts) -> Section:
        """Return the section with the title and introduction that fit the facts."""
        found = None if self.words is None else self.words(facts)
        return self if found is None else replace(self, title=found[0], intro=found[1])

    def is_shown(self, facts: Facts) -> bool:
        """Return whether the page has this section."""
        if self.shown_if is not None:
            return self.shown_if(facts)
        if self.context is not None:
            return bool(self.context(facts))
        return self.name in facts.found or any(self.name in run.found for run in facts.runs)

    @property
    def code(self) -> tuple[str, ...]:
        """File names of the scripts of this section."""
        return () if self.template else tuple(f"{name}.js" for name in self.scripts or (self.name,))


def of_drawn(intro: str, facts: Facts) -> str:
    """Return an introduction with a sentence about the queries that were drawn, if a run has a sample of its queries."""
    drawn = " and ".join(dict.fromkeys(run.drawn for run in facts.runs if run.drawn))
    return f"{intro} {drawn} were ranked." if drawn else intro


def load_sections() -> tuple[Section, ...]:
    """Import the modules of all sections and return the sections in the order of the page."""
    return tuple(import_module(f"{sections.__name__}.{name}").SECTION for name in sections.NAMES)


def places_of(rows: np.ndarray, all_rows: np.ndarray) -> np.ndarray:
    """Return the index in `all_rows` of each of `rows`; -1 for a row that is not among them."""
    order = np.argsort(all_rows, kind="stable")
    at = np.searchsorted(all_rows, rows, sorter=order).clip(max=len(all_rows) - 1)
    return np.where(all_rows[order[at]] == rows, order[at], -1)


def json_block(name: str, value: object) -> Block:
    """Return a value as a block of JSON that cannot close its script element. NaN and infinities become null."""
    text = json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Block(name, "application/json", text.replace("<", "\\u003c").replace("\u2028", " ").replace("\u2029", " "))


def array_block(name: str, value: np.ndarray) -> Block:
    """Return the bytes of an array as a block, in little-endian order."""
    return Block(name, "text/plain", base64.b64encode(value.astype(value.dtype.newbyteorder("<")).tobytes()).decode())


def to_json(value: object) -> object:
    """Return a value that JSON can hold: dataclasses become dicts, arrays and tuples lists, NaN and infinities None.

    Floats keep five significant digits.
    """
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def index_dtype(count: int) -> type:
    """Return the smallest unsigned dtype that can index `count` items; its maximum means "none"."""
    return np.uint32 if count > 65535 else np.uint16


def finite_range(value: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest finite value; 0 and 1 if there is none. The range is never empty."""
    some = value[np.isfinite(value)]
    low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 1.0)
    return low, high if high > low else low + 1.0
