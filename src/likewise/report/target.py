"""One target of a report: its run, samples, embeddings and scores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int

from likewise.core.settings import Train
from likewise.core.types import Items
from likewise.runs.folder import Run
from likewise.runs.scores import PerQuery

MOVED_DATA_HINT = "if the data has moved, give its new place with --data or --root"
"""Advice at the end of a note on images that cannot be read."""


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
