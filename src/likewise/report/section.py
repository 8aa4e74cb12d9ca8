"""Sections of the page: how a section computes its data, and how its data is stored in the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor

from likewise.core.settings import Report
from likewise.report import sections
from likewise.report.blocks import Block
from likewise.report.queries import places_of
from likewise.report.records import Facts, PairRelevance, Pool, RunView
from likewise.report.target import ReportTarget


@dataclass(frozen=True, eq=False)
class Study:
    """One target with the data that several sections use. A section may append to `notes`.

    `pool`, `near` and `near_sim` are None if the run was not scored, `z` also if its embeddings are not known. `z` has unit
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
    """The page that a value is packed for, and the run if it is a value of one run.

    `first_image` is the index of the first image that the section adds for this run.
    """

    facts: Facts
    run: RunView | None = None
    first_image: int = 0

    @property
    def pool(self) -> Pool | None:
        """The pool of the run; None for a value of the whole page or a run that was not scored."""
        return self.facts.pools[self.run.pool] if self.run is not None and self.run.pool >= 0 else None


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
        images: returns the images of a value that are in no pool.
        blocks: yields large arrays, one block for each.
        shown_if: returns whether the page has the section; None: if `of_run` or `of_page` returned a value.
        template: HTML below the heading. The default holds `intro` and the element that a script fills.
        context: computes the variable `content` of the template.
        folded: whether it is at the end of the page, under "More", because few readers need it.
        words: returns another title and introduction for these facts, or None.
        scripts: names of its scripts, in order; the last one calls `fillSection`. None: the script with the name of the section.
    """

    name: str
    link: str
    title: str
    intro: str = ""
    of_run: Callable[[Study], Any] | None = None
    of_page: Callable[[Studies], Any] | None = None
    pack: Callable[[Any, Packing], Any] | None = None
    is_first: bool = False
    images: Callable[[Any], list[Image.Image]] | None = None
    blocks: Callable[[Facts], Iterator[Block]] | None = None
    shown_if: Callable[[Facts], bool] | None = None
    template: str = "section.html"
    context: Callable[[Facts], Any] | None = None
    scripts: tuple[str, ...] | None = None
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
        return self.name in facts.found or any(self.name in run.found for run in facts.runs)

    @property
    def code(self) -> tuple[str, ...]:
        """File names of the scripts of this section."""
        return tuple(f"{name}.js" for name in ((self.name,) if self.scripts is None else self.scripts))


def load_sections() -> tuple[Section, ...]:
    """Import the modules of all sections and return the sections in the order of the page."""
    return tuple(import_module(f"{sections.__name__}.{name}").SECTION for name in sections.NAMES)
