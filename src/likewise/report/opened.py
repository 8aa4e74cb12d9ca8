"""What a report knows of one target: its run, its samples, their embeddings and their scores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int

from likewise.config import Train
from likewise.runs.folder import Run
from likewise.runs.per_query import PerQuery
from likewise.types import Items

MOVED = "if it has moved, say where it is: --data, --root"


@dataclass(frozen=True, eq=False)
class Opened:
    """A run or a file of embeddings, as far as there is something to show.

    `items` are the samples it was scored on, with their embeddings in `x` where these are known; `row` says where they stand in
    the data. `data` is the whole of the data, where it is still there.
    """

    name: str
    run: Run | None = None
    settings: Train | None = None
    data: Items | None = None
    items: Items | None = None
    row: Int[np.ndarray, "N"] | None = None
    part: str = "test"
    similarity: str = "cosine"
    queries: PerQuery | None = None
    scores: dict = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def query_gallery(self) -> tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
        """Which samples ask, and which answer."""
        from likewise.runs.dataset import protocol_for

        assert self.items is not None
        return protocol_for(self.items).query_gallery(self.items, np.arange(len(self.items)))
