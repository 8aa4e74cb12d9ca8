from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import ShareBelowOne, ShareBetween
from likewise.core.contracts import Protocol, Split
from likewise.core.errors import nearest_name
from likewise.core.types import Items, LikewiseError
from likewise.data.label_sets import sample_labels
from likewise.data.protocols.splits import check_groups, check_own_split, in_splits


class UnseenLabels(Protocol):
    """Test on labels that are not in training, for samples with several labels: a row with a held-out label never trains.

    The column `split` of the data defines the splits, if it exists; else the last share of the labels (in label order) is held
    out. A row that also has labels of training is a test row, too, with all of its labels; `mixed="drop"` leaves it out. The more
    labels a row has, the fewer rows remain for training: hold out few labels, or name them.

    Args:
        test: share of the labels that are held out for the test split.
        val: share of the other labels that are held out for the validation split; 0: no validation split.
        names: names of the labels to hold out for the test split, in place of `test`.
        mixed: rows with labels of two splits: "test": in the later split (test before val before train); "drop": in no split.
    """

    def __init__(
        self,
        test: ShareBetween = 0.5,
        val: ShareBelowOne = 0.0,
        names: tuple[str, ...] | list[str] = (),
        mixed: Literal["test", "drop"] = "test",
    ):
        self.test = test
        self.val = val
        self.names = names
        self.mixed = mixed

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        return np.flatnonzero(self._split(items) == part)

    def _split(self, items: Items) -> np.ndarray:
        inside = in_splits(items)
        split = np.where(inside, "train" if items.split is None else items.split, "").astype("<U5")
        # The labels before noise was injected: noise must not change the split.
        rows = np.flatnonzero(split == "train")
        sample, label = sample_labels(items, items.y_before_noise[rows])
        labels = np.unique(label)
        if items.split is None:
            held = self._held_out(items, labels)
            self._assign(split, rows, sample, np.isin(label, held), "test")
            labels = np.setdiff1d(labels, held)
        else:
            check_own_split(items, "UnseenLabels", "test and names", self.test == 0.5 and not self.names)
        if self.val and not (split == "val").any():
            held = labels[max(1, round((1 - self.val) * len(labels))) :]
            self._assign(split, rows, sample, np.isin(label, held), "val")
        if not (split == "train").any():
            raise LikewiseError(
                f"UnseenLabels: some rows must train, but every row of '{items.name}' has a held-out label; lower test or val, "
                "or name few labels: names=['striped']"
            )
        check_groups(items, split)
        return split

    def _held_out(self, items: Items, labels: Int[np.ndarray, "L"]) -> Int[np.ndarray, "h"]:
        """Return the labels that are held out for the test split."""
        every = items.class_name if items.label_name is None else items.label_name
        if self.names:
            number = {name: place for place, name in enumerate(every)}
            unknown = next((name for name in self.names if name not in number), None)
            if unknown is not None:
                raise LikewiseError(
                    f"UnseenLabels: '{items.name}' has no label '{unknown}'{nearest_name(unknown, every)} "
                    f"It has {len(every)} labels, such as {', '.join(every[:3])}"
                )
            return np.array([number[name] for name in self.names])
        held = labels[max(1, round((1 - self.test) * len(labels))) :]
        if not len(held):
            raise LikewiseError(
                f"UnseenLabels: {len(labels)} labels cannot be divided into train and test labels at test={self.test}; "
                "add labels, or a `split` column"
            )
        return held

    def _assign(self, split: np.ndarray, rows: np.ndarray, sample: np.ndarray, is_held: np.ndarray, part: str) -> None:
        """Assign the rows with a held-out label to a split, if they are still in train."""
        held, other = (np.bincount(sample[mask], minlength=len(rows)) > 0 for mask in (is_held, ~is_held))
        goes = held & (split[rows] == "train")
        split[rows[goes]] = part
        if self.mixed == "drop":
            split[rows[goes & other]] = ""
