from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int

from likewise.contracts import Part, Protocol
from likewise.protocols.parts import rows_by_class
from likewise.search import rank
from likewise.types import Embedded, Items, LikewiseError, Retrieval


class UnseenClasses(Protocol):
    """Train on some classes, test on others: every test sample asks, all other test samples may answer.

    The data's own `split` counts where it has one; else the first share of the classes (in label order) trains.
    Samples of one `group` are no answers to each other.

    Args:
        train: share of the classes that train, where the data has no split. The field's custom: half.
        val: share of the training classes held out for validation, where the data has no val split.
    """

    def __init__(self, train: float = 0.5, val: float = 0.0):
        if not 0 < train < 1 or not 0 <= val < 1:
            raise LikewiseError(
                f"UnseenClasses: 0 < train < 1 and 0 <= val < 1 must hold, got train={train}, val={val}"
            )
        self.train = train
        self.val = val

    def rows(self, items: Items, part: Part) -> Int[np.ndarray, "n"]:
        return rows_by_class(items, part, self.train, self.val)

    def retrieve(
        self,
        e: Embedded,
        items: Items,
        k: int = 10,
        similarity: Literal["cosine", "euclidean"] = "cosine",
        progress: Callable[[float], None] | None = None,
    ) -> Retrieval:
        group = None if items.group is None else torch.as_tensor(items.group).to(e.row.device)[e.row]
        return rank(e.z, e.y, k=k, group=group, similarity=similarity, progress=progress)
