"""Assignment of rows to the train, val and test splits by class, as several protocols use it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from likewise.core.contracts import Protocol, Split
from likewise.core.types import Items, LikewiseError


def rows_by_class(items: Items, part: Split, train: float, val: float) -> Int[np.ndarray, "n"]:
    """Return the rows of a split: of the data's own split, or else the first classes train and the others test.

    If `val` > 0 and the data has no val split, the last training classes become the val split. With `train=1` all rows train.
    """
    if items.split is not None and train not in (0.5, 1):
        raise LikewiseError(
            f"protocols: train must be omitted or 1, because the data '{items.name}' has its own split, got train={train}; "
            "omit train, or train on all rows: train=1"
        )
    split = np.array(_first_classes(items, train) if items.split is None else items.split, dtype="<U5")
    split[~in_splits(items)] = ""
    if train == 1:
        split[split != ""] = "train"
    if val and not (split == "val").any():
        held_out = _last_classes(items, np.flatnonzero(split == "train"), val)
        split[(split == "train") & np.isin(items.y, held_out)] = "val"
    check_groups(items, split)
    return np.flatnonzero(split == part)


def in_splits(items: Items) -> Bool[np.ndarray, "N"]:
    """Return a mask of the rows that may be in a split: no junk, and not without a split in the data's own column."""
    inside = np.ones(len(items), bool) if items.split is None else items.split != ""
    return inside if items.junk is None else inside & ~items.junk


def _first_classes(items: Items, share: float) -> np.ndarray:
    classes = np.unique(items.y_before_noise[in_splits(items)])
    first = classes[: max(1, round(share * len(classes)))]
    if len(first) == len(classes) and share < 1:
        raise LikewiseError(
            f"protocols: {len(classes)} class{'es' * (len(classes) != 1)} cannot be divided into train and test classes at "
            f"train={share}; add classes, or a `split` column; train=1 trains on all classes and has no test split"
        )
    return np.where(np.isin(items.y_before_noise, first), "train", "test")


def _last_classes(items: Items, train_rows: np.ndarray, share: float) -> np.ndarray:
    classes = np.unique(items.y[train_rows])
    count = max(1, round(share * len(classes)))
    if count >= len(classes):
        raise LikewiseError(
            f"protocols: some training classes must remain, but val={share} takes all {len(classes)} of them; lower val"
        )
    return classes[-count:]


def check_groups(items: Items, split: np.ndarray) -> None:
    """Raise if a group (one listing, one burst) is in two splits. A camera may be in several splits."""
    if items.group is None:
        return
    inside = (items.group >= 0) & (split != "")
    pairs = np.unique(np.stack([items.group[inside].astype(str), split[inside].astype(str)]), axis=1)
    group, count = np.unique(pairs[0], return_counts=True)
    if (count > 1).any():
        raise LikewiseError(
            f"protocols: a group must be in one split, but {int((count > 1).sum())} groups are in two or more "
            f"(first: group {group[count > 1][0]}); put each group into one split"
        )


def check_own_split(items: Items, owner: str, arguments: str, are_default: bool) -> None:
    """Raise if the data has its own split and arguments of the protocol ask for another one."""
    if items.split is not None and not are_default:
        raise LikewiseError(
            f"{owner}: {arguments} must be omitted, because the data '{items.name}' has its own split; omit it, or drop the "
            "column `split`"
        )


def require_split(items: Items, owner: str) -> np.ndarray:
    """Return the data's own split; raise if it has none."""
    if items.split is None:
        raise LikewiseError(
            f"{owner}: own_split=True needs a split, but the data '{items.name}' has none; add the column `split`, or omit "
            "own_split"
        )
    return items.split


def split_by(protocol: Protocol, items: Items) -> np.ndarray:
    """Return the split of each row; "": in no split. A training row that is also gallery of the test split is "train"."""
    split = np.full(len(items), "", "<U5")
    for part in ("test", "val", "train"):
        split[protocol.rows(items, part)] = part
    return split
