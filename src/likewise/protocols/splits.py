"""How protocols cut a data set into train, val and test rows by class."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.contracts import Protocol, Split
from likewise.types import Items, LikewiseError


def rows_by_class(items: Items, part: Split, train: float, val: float) -> Int[np.ndarray, "n"]:
    """Rows of a part. The data's own split counts where it has one; else the first classes train and the rest test.

    A `val` part the data does not bring itself is carved from the last training classes. With `train=1` all of it trains.
    """
    if items.split is not None and train not in (0.5, 1):
        raise LikewiseError(
            f"protocols: train={train} is wanted, but the data '{items.name}' has a split of its own; leave train out, or "
            "train on all of it: train=1"
        )
    split = np.array(_first_classes(items, train) if items.split is None else items.split, dtype="<U5")
    if train == 1:
        split[split != ""] = "train"
    if val and not (split == "val").any():
        held = _last_classes(items, np.flatnonzero(split == "train"), val)
        split[(split == "train") & np.isin(items.y, held)] = "val"
    check_groups(items, split)
    return np.flatnonzero(split == part)


def _first_classes(items: Items, share: float) -> np.ndarray:
    classes = np.unique(items.y_first)
    first = classes[: max(1, round(share * len(classes)))]
    if len(first) == len(classes) and share < 1:
        raise LikewiseError(
            f"protocols: {len(classes)} classes cannot be cut into train and test classes at train={share}; "
            "bring more classes, or a `split` column; train=1 trains on all and tests none"
        )
    return np.where(np.isin(items.y_first, first), "train", "test")


def _last_classes(items: Items, train_rows: np.ndarray, share: float) -> np.ndarray:
    classes = np.unique(items.y[train_rows])
    count = max(1, round(share * len(classes)))
    if count >= len(classes):
        raise LikewiseError(
            f"protocols: val={share} of {len(classes)} training classes leaves none to train on; lower val"
        )
    return classes[-count:]


def check_groups(items: Items, split: np.ndarray) -> None:
    """A group (one camera, one listing) must not stand in two parts."""
    if items.group is None:
        return
    inside = (items.group >= 0) & (split != "")
    pairs = np.unique(np.stack([items.group[inside].astype(str), split[inside].astype(str)]), axis=1)
    group, count = np.unique(pairs[0], return_counts=True)
    if (count > 1).any():
        raise LikewiseError(
            f"protocols: a group must stay in one part, but {int((count > 1).sum())} groups stand in two "
            f"(first: group {group[count > 1][0]}); put each group into one split"
        )


def split_by(protocol: Protocol, items: Items) -> np.ndarray:
    """The part that each row is in, as a table says it; "" = in none. Training rows that also answer in the test split train."""
    split = np.full(len(items), "", "<U5")
    for part in ("test", "val", "train"):
        split[protocol.rows(items, part)] = part
    return split
