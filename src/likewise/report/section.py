"""A section of the page: what it shows of runs, and how that gets into the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor

from likewise.config import Report
from likewise.report import sections
from likewise.report.blocks import Block
from likewise.report.opened import Opened
from likewise.report.queries import places_of
from likewise.report.records import Facts, Pool, Viewed


@dataclass(frozen=True, eq=False)
class Study:
    """One opened run and what several sections need of it. A section may add to `notes`.

    `pool`, `near` and `near_sim` are None where the run was not scored, `z` also where its embeddings are not known. `z` is
    normalised if the run compares by cosine.
    """

    one: Opened
    config: Report
    log: Sequence[dict]
    decides: str
    notes: list[str]
    pool: Pool | None = None
    z: Float[Tensor, "N D"] | None = None
    near: Int[np.ndarray, "N K"] | None = None
    near_sim: Float[np.ndarray, "N K"] | None = None

    @property
    def queries(self) -> tuple[Int[np.ndarray, "Q"], Float[np.ndarray, "Q"]] | None:
        """Places of the queries, and their values of the deciding metric; NaN where a query has nothing to find."""
        if self.pool is None or self.one.queries is None or self.one.row is None:
            return None
        return places_of(self.one.queries.row, self.one.row), self.one.queries.each[self.decides]


@dataclass(frozen=True, eq=False)
class Studies:
    """All runs of a page, their embeddings no longer in memory. A section may add to `notes`."""

    opened: Sequence[Opened]
    viewed: Sequence[Viewed]
    pools: Sequence[Pool]
    config: Report
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Packing:
    """What a value is packed for: the page, and the run if it is a value of one run.

    `picture` is the number of the first of the section's own pictures for this run.
    """

    facts: Facts
    run: Viewed | None = None
    picture: int = 0

    @property
    def pool(self) -> Pool | None:
        return self.facts.pools[self.run.pool] if self.run is not None and self.run.pool >= 0 else None


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page, and how its data gets there.

    Args:
        name: anchor in the page, key of its values in `Viewed.found` and `Facts.found`, and key of its data in the page.
        link: text of its link in the contents.
        title: heading.
        intro: sentence below the heading.
        of_run: what the section shows of one run. None or an empty value: nothing.
        of_page: what the section shows of all runs together. None or an empty value: nothing.
        pack: the value as JSON can hold it; None: as it is. Dataclasses, arrays and tuples are converted later.
        is_first: the data is in the block `facts`, which the page reads at once, not in the block `more`.
        pictures: pictures of a value that are not in a pool.
        blocks: large arrays, each a block of its own.
        shown_if: whether the page has the section; None: if `of_run` or `of_page` found something.
        template: HTML below the heading. The default holds `intro` and the element that a script fills.
        context: what the template calls `told`.
        scripts: the section's code, in order, of which the last calls `fillSection`; None: the script with its name.
    """

    name: str
    link: str
    title: str
    intro: str = ""
    of_run: Callable[[Study], Any] | None = None
    of_page: Callable[[Studies], Any] | None = None
    pack: Callable[[Any, Packing], Any] | None = None
    is_first: bool = False
    pictures: Callable[[Any], list[Image.Image]] | None = None
    blocks: Callable[[Facts], Iterator[Block]] | None = None
    shown_if: Callable[[Facts], bool] | None = None
    template: str = "section.html"
    context: Callable[[Facts], Any] | None = None
    scripts: tuple[str, ...] | None = None

    def is_shown(self, facts: Facts) -> bool:
        """Return whether the page has this section."""
        if self.shown_if is not None:
            return self.shown_if(facts)
        return self.name in facts.found or any(self.name in run.found for run in facts.runs)

    @property
    def code(self) -> tuple[str, ...]:
        """File names of its scripts."""
        return tuple(f"{name}.js" for name in ((self.name,) if self.scripts is None else self.scripts))


def load_sections() -> tuple[Section, ...]:
    """Return all sections in the order of the page. Their modules are imported by name, when a page is made."""
    return tuple(import_module(f"{sections.__name__}.{name}").SECTION for name in sections.NAMES)
