from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import ShareAboveZero, ShareBelowOne
from likewise.core.contracts import Protocol, Split
from likewise.core.types import Items
from likewise.data.protocols.splits import rows_by_class


class UnseenClasses(Protocol):
    """Test on classes that are not in training: every test sample is a query, all other test samples are its gallery.

    The column `split` of the data defines the splits, if it exists; else the first share of the classes (in label order) trains.
    If samples have several labels, a class is a set of labels: test sets do not train, but their labels may, and the check for
    leaks then counts these labels. Use `StratifiedLabels` or `UnseenLabels`.
    A query does not retrieve samples of its own `group`, nor samples of its own class from its own `camera`.

    Args:
        train: share of the classes in the training split, if the data has no split. The convention is half. 1: train on all
            classes, also of data with a split, for a network to deploy; there is no test split then.
        val: share of the training classes held out for validation, if the data has no val split.
    """

    def __init__(self, train: ShareAboveZero = 0.5, val: ShareBelowOne = 0.0):
        self.train = train
        self.val = val
        self.has_test_split = train < 1

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        return rows_by_class(items, part, self.train, self.val)
