from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

from likewise.core.argument_checks import CountOrZero, ShareBelowOne, ShareBetween
from likewise.core.contracts import Protocol, Split
from likewise.core.types import Items, LikewiseError
from likewise.data.protocols.splits import check_groups, in_splits, require_split


class SeenClasses(Protocol):
    """Held-out images of every class: training and test have the same classes (closed set), as in a catalogue.

    Every class keeps a training image; a class with a single image, or a single `group`, is only in the training split. Rows of
    one group stay in one split, so that shares are approximate.

    With gallery="train" the training rows are the gallery, and only the held-out images are queries: held-out images are searched
    among the images of the training. Validation works in the same way.

    Args:
        test: share of the images of a class in the test split; at least one image.
        val: share of the remaining images in the validation split; at least one image if two remain. 0: no validation split.
        gallery: "test": the other held-out images; "train": the training images.
        own_split: use the train, val and test splits of the data in place of `test` and `val`.
        seed: of the split, not of the run: runs with different seeds are tested on the same images.
    """

    shares_classes = True

    gallery: Literal["test", "train"]

    def __init__(
        self,
        test: ShareBetween = 0.2,
        val: ShareBelowOne = 0.0,
        gallery: Literal["test", "train"] = "test",
        own_split: bool = False,
        seed: CountOrZero = 0,
    ):
        self.test = test
        self.val = val
        self.gallery = gallery
        self.own_split = own_split
        self.seed = seed

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        split = self._split(items)
        inside = split == part
        if self.gallery == "train" and inside.any():
            inside |= split == "train"
        elif part == "test" and inside.any() and np.bincount(items.y[inside]).max() < 2:
            raise LikewiseError(
                f"SeenClasses: gallery='test' needs two held-out images in some class, but in '{items.name}' no class has two of "
                "them; raise test, or search the training images: gallery='train'"
            )
        return np.flatnonzero(inside)

    def query_gallery(
        self, items: Items, rows: Int[np.ndarray, "n"]
    ) -> tuple[Bool[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
        trains = self._split(items)[rows] == "train"
        if self.gallery == "test" or trains.all():
            return super().query_gallery(items, rows)
        return ~trains, trains

    def _split(self, items: Items) -> np.ndarray:
        # The labels before noise was injected: noise must not change the split.
        y = items.y_before_noise
        if self.own_split:
            split = self._own_split(items, y)
        else:
            split = np.where(in_splits(items), "train", "").astype("<U5")
            rng = np.random.default_rng(self.seed)
            for part, share in (("test", self.test), ("val", self.val)):
                if share:
                    split[held_out(y, items.group, np.flatnonzero(split == "train"), share, rng)] = part
        check_groups(items, split)
        return split

    def _own_split(self, items: Items, y: Int[np.ndarray, "N"]) -> np.ndarray:
        split = np.where(in_splits(items), require_split(items, "SeenClasses"), "")
        unseen = np.setdiff1d(y[split == "test"], y[split == "train"])
        if len(unseen):
            raise LikewiseError(
                f"SeenClasses: every test class must have a training image, but {len(unseen)} of '{items.name}' have none "
                f"(first: {items.class_name[unseen[0]]}); use UnseenClasses, or omit own_split"
            )
        return split


def held_out(
    y: Int[np.ndarray, "N"],
    group: Int[np.ndarray, "N"] | None,
    rows: Int[np.ndarray, "n"],
    share: float,
    rng: np.random.Generator,
) -> Int[np.ndarray, "m"]:
    """Return about this share of the rows of each class, in whole groups; every class keeps at least one row.

    Groups (and rows without group) are visited in random order. A group is taken if one of its classes still needs rows and all
    of its classes keep other rows.
    """
    order = rng.permutation(rows)
    size = np.bincount(y[rows], minlength=y.max() + 1)
    needed = np.minimum(np.maximum(1, np.round(share * size).astype(np.int64)), size - 1)
    if group is None or (group[rows] < 0).all():
        order = order[np.argsort(y[order], kind="stable")]  # sorted by class, random within a class
        first = (np.cumsum(size) - size)[y[order]]
        return order[np.arange(len(order)) - first < needed[y[order]]]
    together: dict[tuple[int, int], list[int]] = {}
    for row in order.tolist():
        together.setdefault((int(group[row]), -1 if group[row] >= 0 else row), []).append(row)
    taken: list[int] = []
    for members in together.values():
        own, count = np.unique(y[members], return_counts=True) if len(members) > 1 else (y[members], 1)
        if (needed[own] > 0).any() and (size[own] > count).all():
            needed[own] -= count
            size[own] -= count
            taken += members
    return np.asarray(taken, np.int64)
