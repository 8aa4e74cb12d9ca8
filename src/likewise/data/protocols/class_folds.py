from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge
from jaxtyping import Int

from likewise.core.argument_checks import CountOrZero
from likewise.core.contracts import Protocol, Split
from likewise.core.types import Items, LikewiseError
from likewise.data.protocols.splits import check_groups, in_splits, require_split


class ClassFolds(Protocol):
    """Cross-validation over classes: several models train on overlapping classes and have the same test classes.

    The second half of the classes, in label order, is the test split. Of the first n classes, model p trains on n - n // folds
    consecutive classes from p n // folds on, wrapping around at n, and validates on the following n // folds classes.
    A spec without `fold` means all of the models.

    Paper: Musgrave et al., A Metric Learning Reality Check, ECCV 2020, with 4 folds.
    Differs: nothing. If folds does not divide n, a few classes are never validated (2 of 98 in Cars196), as in the paper.

    Args:
        folds: number of models. Paper: 4.
        fold: number of this model, from 0.
        own_split: True: divide the train (and val) split of the data into folds, and keep its test split. False, as in the
            paper: test on the second half of all classes, which is 11,317 classes of SOP, whose own training split has 11,318.
    """

    def __init__(self, folds: Annotated[int, Ge(2)] = 4, fold: CountOrZero = 0, own_split: bool = False):
        if fold >= folds:
            raise LikewiseError(f"ClassFolds: fold must be below folds, got folds={folds}, fold={fold}")
        self.folds = folds
        self.fold = fold
        self.own_split = own_split

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        if self.own_split:
            require_split(items, "ClassFolds")
        inside = in_splits(items)
        if self.own_split:
            tests = inside & (items.split == "test")
        else:
            classes = np.unique(items.y_before_noise[inside])
            tests = inside & np.isin(items.y_before_noise, classes[len(classes) // 2 :])
        split = np.where(tests, "test", "").astype("<U5")
        train, val = self._folds_of(np.unique(items.y[inside & ~tests]))
        split[inside & ~tests & np.isin(items.y, train)] = "train"
        split[inside & ~tests & np.isin(items.y, val)] = "val"
        check_groups(items, split)
        return np.flatnonzero(split == part)

    def _folds_of(self, classes: Int[np.ndarray, "C"]) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "v"]]:
        count = len(classes)
        if count < self.folds:
            raise LikewiseError(
                f"ClassFolds: each of the {self.folds} folds needs a validation class, but only {count} classes are not test "
                "classes; add classes, or lower folds"
            )
        held_out = count // self.folds
        order = np.roll(classes, -(self.fold * count // self.folds))
        return order[: count - held_out], order[count - held_out :]
