from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import CountOrZero, ShareBelowOne, ShareBetween
from likewise.core.contracts import Protocol, Split
from likewise.core.types import Items
from likewise.data.label_sets import sample_labels
from likewise.data.protocols.splits import check_groups, check_own_split, in_splits

SHARE_STEPS = 10**6
"""Shares are whole numbers of this unit, so that the choice between two splits compares exact numbers."""


class StratifiedLabels(Protocol):
    """Held-out images for samples with several labels: every label has about the same share of its images in every split.

    The column `split` of the data defines the splits, if it exists. Otherwise iterative stratification assigns the images of the
    label with the fewest unassigned images first, each to the split that still needs most images of this label. Rows of one
    `group` stay in one split, so that shares are approximate. Training and test have the same labels, and may have the same sets
    of labels; `UnseenLabels` tests on labels that do not train.

    Paper: Sechidis et al., On the Stratification of Multi-Label Data, ECML PKDD 2011.
    Differs: ties are broken by the seed; a group counts as one image that has all labels of its rows.

    Args:
        test: share of the images in the test split.
        val: share of the other images in the validation split; 0: no validation split.
        seed: of the split, not of the run: runs with different seeds are tested on the same images.
    """

    shares_classes = True

    def __init__(self, test: ShareBetween = 0.3, val: ShareBelowOne = 0.0, seed: CountOrZero = 0):
        self.test = test
        self.val = val
        self.seed = seed

    def rows(self, items: Items, part: Split) -> Int[np.ndarray, "n"]:
        return np.flatnonzero(self._split(items) == part)

    def _split(self, items: Items) -> np.ndarray:
        inside = in_splits(items)
        split = np.where(inside, "train" if items.split is None else items.split, "").astype("<U5")
        tests = round(self.test * SHARE_STEPS) if items.split is None else 0
        if items.split is not None:
            check_own_split(items, "StratifiedLabels", "test", self.test == 0.3)
        vals = 0 if (split == "val").any() else round(self.val * (SHARE_STEPS - tests))
        shares = {"train": SHARE_STEPS - tests - vals, "val": vals, "test": tests}
        rows = np.flatnonzero(split == "train")
        if (tests or vals) and len(rows):
            split[rows] = self._draw(items, rows, shares)
        check_groups(items, split)
        return split

    def _draw(self, items: Items, rows: Int[np.ndarray, "n"], shares: dict[str, int]) -> np.ndarray:
        """Return the split of every row. Labels before noise was injected count: noise must not change the split."""
        sample, label = sample_labels(items, items.y_before_noise[rows])
        unit = np.arange(len(rows))
        if items.group is not None:  # rows without a group are units of their own
            group = items.group[rows]
            unit = np.unique(np.where(group >= 0, group, group.max() + 1 + unit), return_inverse=True)[1]
        parts = [name for name, share in shares.items() if share]
        share = np.array([shares[name] for name in parts])
        drawn = stratify(unit[sample], label, share, np.random.default_rng(self.seed))
        return np.array(parts)[drawn[unit]]


def stratify(
    unit: Int[np.ndarray, "P"], label: Int[np.ndarray, "P"], share: Int[np.ndarray, "S"], rng: np.random.Generator
) -> Int[np.ndarray, "U"]:
    """Return the split of every unit, by iterative stratification.

    Args:
        unit: unit of every pair (unit, label), 0 to U - 1, each at least once; a pair may occur several times.
        label: label of the pair.
        share: share of every split, as whole numbers.
    """
    label = np.unique(label, return_inverse=True)[1]
    labels = label.max() + 1
    pair = np.unique(label * (unit.max() + 1) + unit)  # sorted by label
    label, unit = pair // (unit.max() + 1), pair % (unit.max() + 1)
    units = unit.max() + 1
    whole = int(share.sum())
    left = np.bincount(label, minlength=labels)  # unassigned units of each label
    wanted = left[:, None] * share[None, :]  # units of each label that each split still needs, times `whole`
    room = units * share  # units that each split still needs, times `whole`
    start = np.concatenate([[0], np.cumsum(left)])
    by_unit = np.argsort(unit, kind="stable")
    unit_start = np.searchsorted(unit[by_unit], np.arange(units + 1))
    order, tie = rng.permutation(units), rng.permutation(labels)
    part = np.full(units, -1)
    while left.any():
        now = np.argmin(np.where(left > 0, left * labels + tie, np.iinfo(np.int64).max))  # the fewest, ties by the seed
        members = unit[start[now] : start[now + 1]]
        members = members[part[members] < 0]
        members = members[np.argsort(order[members])]
        part[members] = fill(wanted[now], room, whole, len(members), rng)
        size = unit_start[members + 1] - unit_start[members]
        first = np.repeat(unit_start[members] - (np.cumsum(size) - size), size)
        touched = label[by_unit[first + np.arange(size.sum())]]  # labels of the members, by member
        left -= np.bincount(touched, minlength=labels)
        got = np.bincount(touched * len(share) + np.repeat(part[members], size), minlength=wanted.size)
        wanted -= whole * got.reshape(wanted.shape)
        room = room - whole * np.bincount(part[members], minlength=len(share))
    return part


def fill(
    wanted: Int[np.ndarray, "S"], room: Int[np.ndarray, "S"], whole: int, count: int, rng: np.random.Generator
) -> Int[np.ndarray, "n"]:
    """Return the splits of `count` units, one after another: that which needs most of the label, then most units at all.

    A split needs one unit less after each that it gets. Therefore the choices are the largest of the needs before its first,
    second, ... unit, over all splits.
    """
    taken = np.repeat(np.arange(count), len(wanted)) * whole
    part = np.tile(np.arange(len(wanted)), count)
    by_need = np.lexsort((rng.random(len(part)), -(room[part] - taken), -(wanted[part] - taken)))
    return part[by_need[:count]]
