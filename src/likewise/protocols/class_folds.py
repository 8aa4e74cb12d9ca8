from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.contracts import Protocol, Split
from likewise.protocols.splits import check_groups
from likewise.types import Items, LikewiseError


class ClassFolds(Protocol):
    """Cross-validation over classes: one of several models that train on overlapping classes and share one test half.

    The classes in label order are cut in two; the second half tests. Of the n classes before it, model p trains on a run of
    n - n // folds classes that starts at p n // folds and goes around the end, and validates on the n // folds after them.
    A spec that leaves `fold` out stands for all of the models.

    Paper: Musgrave et al., A Metric Learning Reality Check, ECCV 2020, with 4 folds.
    Differs: nothing. Where folds do not divide n, a few classes are never validated (2 of 98 in Cars196), as there.

    Args:
        folds: how many models there are. Paper: 4.
        fold: which of them this is, from 0.
        own_split: whether the data's own train (and val) part is cut into folds and its test split tests. The paper cuts all
            classes in half: 11,317 of SOP on each side, where its authors train on 11,318.
    """

    def __init__(self, folds: int = 4, fold: int = 0, own_split: bool = False):
        if folds < 2 or not 0 <= fold < folds:
            raise LikewiseError(
                f"ClassFolds: folds must be 2 or more and fold one of 0..folds-1, got folds={folds}, fold={fold}"
            )
        self.folds = folds
        self.fold = fold
        self.own_split = own_split

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        if self.own_split and items.split is None:
            raise LikewiseError(
                f"ClassFolds: own_split=True needs a split, and the data '{items.name}' has none; add the column, or leave "
                "own_split out"
            )
        inside = np.ones(len(items), bool) if items.split is None else items.split != ""
        if self.own_split:
            tests = items.split == "test"
        else:
            classes = np.unique(items.y_first[inside])
            tests = inside & np.isin(items.y_first, classes[len(classes) // 2 :])
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
                f"ClassFolds: each of the {self.folds} folds needs a class to validate on, but only {count} classes are not "
                "for testing; bring more classes, or lower folds"
            )
        held = count // self.folds
        order = np.roll(classes, -(self.fold * count // self.folds))
        return order[: count - held], order[count - held :]
