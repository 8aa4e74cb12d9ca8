from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from likewise.core.argument_checks import ShareBelowOne, ShareBetween
from likewise.core.contracts import Protocol, Split
from likewise.core.errors import nearest_name
from likewise.core.types import Items, LikewiseError
from likewise.data.protocols.splits import rows_by_class


class QueryGallery(Protocol):
    """Queries and gallery from the columns `query` and `gallery` (In-Shop). A row may be both, and never retrieves itself.

    In a split without marked rows (usually validation), all rows are query and gallery. The column `gallery` may contain the
    names of several galleries ("shop", "street"); all of them are searched together, unless one is chosen.
    A query does not retrieve samples of its own `group`, nor samples of its own class from its own `camera` (Market-1501).

    Args:
        train: share of the classes in the training split, if the data has no split.
        val: share of the training classes held out for validation, if the data has no val split.
        gallery: name of the gallery to search; None: all galleries together.
    """

    def __init__(self, train: ShareBetween = 0.5, val: ShareBelowOne = 0.0, gallery: str | None = None):
        self.train = train
        self.val = val
        self.gallery = gallery

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        if items.query is None and items.gallery is None:
            raise LikewiseError(
                f"QueryGallery: the data must mark queries or gallery, '{items.name}' marks neither; add the columns `query` and "
                "`gallery`, or use UnseenClasses"
            )
        self._check_name(items)
        return rows_by_class(items, part, self.train, self.val)

    def query_gallery(
        self, items: Items, rows: Int[np.ndarray, "n"]
    ) -> tuple[Bool[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        self._check_name(items)
        every = np.ones(len(rows), bool)
        is_query = every if items.query is None else items.query[rows]
        is_gallery = every if items.gallery is None else items.gallery[rows]
        if not is_query.any() and not is_gallery.any():
            return every, every
        if self.gallery is None:
            return is_query, is_gallery
        assert items.gallery_name is not None
        return is_query, items.gallery_name[rows] == self.gallery

    def galleries(self, items: Items, rows: Int[np.ndarray, "n"]) -> tuple[str, ...]:
        if self.gallery is not None or items.gallery_name is None:
            return ()
        return tuple(sorted(set(items.gallery_name[rows].tolist()) - {""}))

    def only(self, gallery: str) -> QueryGallery:
        return QueryGallery(self.train, self.val, gallery)

    def _check_name(self, items: Items) -> None:
        names = [] if items.gallery_name is None else sorted(set(items.gallery_name.tolist()) - {""})
        if self.gallery is not None and self.gallery not in names:
            hint = f"It has: {', '.join(names)}" if names else "Write names into its column `gallery`"
            raise LikewiseError(
                f"QueryGallery: the data '{items.name}' has no gallery '{self.gallery}'"
                f"{nearest_name(self.gallery, names)} {hint}"
            )
