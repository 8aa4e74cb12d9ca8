from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from likewise.contracts import Protocol, Split
from likewise.errors import nearest_name
from likewise.protocols.splits import rows_by_class
from likewise.types import Items, LikewiseError


class QueryGallery(Protocol):
    """Test samples marked `query` ask, those marked `gallery` answer (In-Shop). A row may be both, and never answers itself.

    Where a part has no marked rows (validation, usually), all of its rows ask and answer. The column `gallery` may name
    several galleries ("shop", "street"); all of them answer, unless one is chosen.

    Args:
        train: share of the classes that train, where the data has no split.
        val: share of the training classes held out for validation, where the data has no val split.
        gallery: name of the gallery that answers; None = all of them together.
    """

    def __init__(self, train: float = 0.5, val: float = 0.0, gallery: str | None = None):
        if not 0 < train < 1 or not 0 <= val < 1:
            raise LikewiseError(f"QueryGallery: 0 < train < 1 and 0 <= val < 1 must hold, got train={train}, val={val}")
        self.train = train
        self.val = val
        self.gallery = gallery

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        if items.query is None and items.gallery is None:
            raise LikewiseError(
                f"QueryGallery: the data '{items.name}' marks no queries and no gallery; add the columns `query` and "
                "`gallery`, or use UnseenClasses"
            )
        self._check_name(items)
        return rows_by_class(items, part, self.train, self.val)

    def query_gallery(
        self, items: Items, rows: Int[np.ndarray, "n"]
    ) -> tuple[Bool[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        self._check_name(items)
        every = np.ones(len(rows), bool)
        asks = every if items.query is None else items.query[rows]
        answers = every if items.gallery is None else items.gallery[rows]
        if not asks.any() and not answers.any():
            return every, every
        if self.gallery is None:
            return asks, answers
        assert items.gallery_name is not None
        return asks, items.gallery_name[rows] == self.gallery

    def galleries(self, items: Items, rows: Int[np.ndarray, "n"]) -> tuple[str, ...]:
        if self.gallery is not None or items.gallery_name is None:
            return ()
        return tuple(sorted(set(items.gallery_name[rows].tolist()) - {""}))

    def only(self, gallery: str) -> QueryGallery:
        return QueryGallery(self.train, self.val, gallery)

    def _check_name(self, items: Items) -> None:
        names = [] if items.gallery_name is None else sorted(set(items.gallery_name.tolist()) - {""})
        if self.gallery is not None and self.gallery not in names:
            has = f"It has: {', '.join(names)}" if names else "Write names into its column `gallery`"
            raise LikewiseError(
                f"QueryGallery: the data '{items.name}' has no gallery '{self.gallery}'"
                f"{nearest_name(self.gallery, names)} {has}"
            )
