from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.contracts import Protocol, Split
from likewise.protocols.splits import rows_by_class
from likewise.types import Items, LikewiseError


class UnseenClasses(Protocol):
    """Train on some classes, test on others: every test sample asks, all other test samples may answer.

    The data's own `split` counts where it has one; else the first share of the classes (in label order) trains.
    Samples of one `group` are no answers to each other.

    Args:
        train: share of the classes that train, where the data has no split. The field's custom: half. 1 = all of them, whatever
            the split says: for a network that is to be used, with nothing left to test.
        val: share of the training classes held out for validation, where the data has no val split.
    """

    def __init__(self, train: float = 0.5, val: float = 0.0):
        if not 0 < train <= 1 or not 0 <= val < 1:
            raise LikewiseError(
                f"UnseenClasses: 0 < train <= 1 and 0 <= val < 1 must hold, got train={train}, val={val}; train=1 trains on all "
                "classes and tests none"
            )
        self.train = train
        self.val = val
        self.has_test_split = train < 1

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        return rows_by_class(items, part, self.train, self.val)
