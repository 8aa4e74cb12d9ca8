from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int

from likewise.contracts import Part, Protocol
from likewise.protocols.parts import rows_by_class
from likewise.search import rank
from likewise.types import Embedded, Items, LikewiseError, Retrieval


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

    def retrieve(
        self,
        e: Embedded,
        items: Items,
        k: int = 10,
        similarity: Literal["cosine", "euclidean"] = "cosine",
        progress: Callable[[float], None] | None = None,
    ) -> Retrieval:
        device = e.row.device
        asks, answers = (torch.as_tensor(side).to(device) for side in self.sides(items, e.row.cpu().numpy()))
        if not asks.any() or not answers.any():
            raise LikewiseError(
                f"QueryGallery: both queries and gallery rows are needed among the {len(e.row)} rows evaluated, "
                f"got {int(asks.sum())} and {int(answers.sum())}; check the columns `query`, `gallery` and `split`"
            )
        q, g = asks.nonzero()[:, 0], answers.nonzero()[:, 0]
        place = torch.full((len(e.row),), -1, dtype=torch.int64, device=device)
        place[g] = torch.arange(len(g), device=device)
        group = None if items.group is None else torch.as_tensor(items.group).to(device)[e.row]
        found = rank(
            e.z[q],
            e.y[q],
            e.z[g],
            e.y[g],
            k=k,
            own=place[q],
            similarity=similarity,
            progress=progress,
            group=None if group is None else group[q],
            gallery_group=None if group is None else group[g],
        )
        row = torch.where(found.row >= 0, g[found.row.clamp_min(0)], -1)
        return Retrieval(q, row, found.match, found.sim, found.relevant, found.depth, found.hit_rank, found.start)
