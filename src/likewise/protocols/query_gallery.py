from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from likewise.contracts import Part, Protocol
from likewise.protocols.parts import rows_by_class
from likewise.types import Items, LikewiseError


class QueryGallery(Protocol):
    """Test samples marked `query` ask, those marked `gallery` answer (In-Shop). A row may be both, and never answers itself.

    Where a part has no marked rows (validation, usually), all of its rows ask and answer.

    Args:
        train: share of the classes that train, where the data has no split.
        val: share of the training classes held out for validation, where the data has no val split.
    """

    def __init__(self, train: float = 0.5, val: float = 0.0):
        if not 0 < train < 1 or not 0 <= val < 1:
            raise LikewiseError(f"QueryGallery: 0 < train < 1 and 0 <= val < 1 must hold, got train={train}, val={val}")
        self.train = train
        self.val = val

    def rows(self, items: Items, part: Part) -> Int[np.ndarray, "n"]:
        if items.query is None and items.gallery is None:
            raise LikewiseError(
                f"QueryGallery: the data '{items.name}' marks no queries and no gallery; add the columns `query` and "
                "`gallery`, or use UnseenClasses"
            )
        return rows_by_class(items, part, self.train, self.val)

    def sides(self, items: Items, rows: Int[np.ndarray, "n"]) -> tuple[Bool[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        every = np.ones(len(rows), bool)
        asks = every if items.query is None else items.query[rows]
        answers = every if items.gallery is None else items.gallery[rows]
        return (asks, answers) if asks.any() or answers.any() else (every, every)
