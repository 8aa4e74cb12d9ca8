from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

from likewise.contracts import Protocol, Split
from likewise.protocols.splits import check_groups
from likewise.types import Items, LikewiseError


class SeenClasses(Protocol):
    """Hold out images of every class: train and test have the same classes (closed set), as in a catalogue.

    Every class keeps a training image; a class with a single image, or a single `group`, only trains. Rows of one group stay
    together, so shares are met as nearly as groups allow.

    With gallery="train" the test split also holds the training rows: they answer and never ask, so that held-out images are
    looked up among the images the network has learned from. Validation is then done in the same way.

    Args:
        test: share of a class's images that test; at least one image.
        val: share of the rest that validates; at least one image where two are left. 0 = there is no validation split.
        gallery: who answers: the other held-out images ("test"), or the training images ("train").
        own_split: whether the data's own train, val and test splits count, in place of `test` and `val`.
        seed: of the cut. It is not the run's seed: runs of several seeds are tested on the same images.
    """

    shares_classes = True

    gallery: Literal["test", "train"]

    def __init__(
        self,
        test: float = 0.2,
        val: float = 0.0,
        gallery: Literal["test", "train"] = "test",
        own_split: bool = False,
        seed: int = 0,
    ):
        if not 0 < test < 1 or not 0 <= val < 1:
            raise LikewiseError(f"SeenClasses: 0 < test < 1 and 0 <= val < 1 must hold, got test={test}, val={val}")
        if seed < 0:
            raise LikewiseError(f"SeenClasses: seed must be 0 or more, got {seed}")
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
                f"SeenClasses: with gallery='test' held-out images answer one another, but of '{items.name}' no class has two "
                "of them; raise test, or let the training images answer: gallery='train'"
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
        # Labels spoiled on purpose must not move the cut, which was made before.
        y = items.y_first
        if self.own_split:
            split = self._given(items, y)
        else:
            split = np.where(np.ones(len(y), bool) if items.split is None else items.split != "", "train", "").astype(
                "<U5"
            )
            rng = np.random.default_rng(self.seed)
            for part, share in (("test", self.test), ("val", self.val)):
                if share:
                    split[held_out(y, items.group, np.flatnonzero(split == "train"), share, rng)] = part
        check_groups(items, split)
        return split

    def _given(self, items: Items, y: Int[np.ndarray, "N"]) -> np.ndarray:
        if items.split is None:
            raise LikewiseError(
                f"SeenClasses: own_split=True needs a split, and the data '{items.name}' has none; add the column, or leave "
                "own_split out"
            )
        unseen = np.setdiff1d(y[items.split == "test"], y[items.split == "train"])
        if len(unseen):
            raise LikewiseError(
                f"SeenClasses: every test class must have a training image, but {len(unseen)} of '{items.name}' have none "
                f"(first: {items.class_name[unseen[0]]}); use UnseenClasses, or leave own_split out"
            )
        return items.split


def held_out(
    y: Int[np.ndarray, "N"],
    group: Int[np.ndarray, "N"] | None,
    rows: Int[np.ndarray, "n"],
    share: float,
    rng: np.random.Generator,
) -> Int[np.ndarray, "m"]:
    """About this share of each class's rows, whole groups at a time, never the last rows of a class.

    In a random order, a group (or a row of none) is taken while one of its classes still lacks rows and all keep others.
    """
    order = rng.permutation(rows)
    size = np.bincount(y[rows], minlength=y.max() + 1)
    lacks = np.minimum(np.maximum(1, np.round(share * size).astype(np.int64)), size - 1)
    if group is None or (group[rows] < 0).all():
        order = order[np.argsort(y[order], kind="stable")]  # class after class, each in its random order
        first = (np.cumsum(size) - size)[y[order]]
        return order[np.arange(len(order)) - first < lacks[y[order]]]
    together: dict[tuple[int, int], list[int]] = {}
    for row in order.tolist():
        together.setdefault((int(group[row]), -1 if group[row] >= 0 else row), []).append(row)
    taken: list[int] = []
    for members in together.values():
        own, count = np.unique(y[members], return_counts=True) if len(members) > 1 else (y[members], 1)
        if (lacks[own] > 0).any() and (size[own] > count).all():
            lacks[own] -= count
            size[own] -= count
            taken += members
    return np.asarray(taken, np.int64)
