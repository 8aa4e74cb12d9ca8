"""Leakage between splits: classes, and samples with the same content, that are in both training and test."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from likewise.core.contracts import Protocol
from likewise.core.types import Items, LikewiseError
from likewise.data.copies import hash_of, size_of, staged_keys, tail_of
from likewise.data.images import file_of
from likewise.data.label_sets import sample_labels


@dataclass(frozen=True)
class Leaks:
    """Classes and samples that train or val share with test. Rows that the protocol puts into both do not count."""

    classes: tuple[str, ...] | None  # shared classes by name; None: the protocol shares classes by design
    images: tuple[tuple[int, int], ...]  # (first train row with the same content, test row)
    first: str = ""  # the first such pair, as text
    noun: str = "image"  # what is shared, for messages
    by_label: bool = False  # samples have several labels: `classes` are labels of test samples that have no other ones


def leaks(items: Items, protocol: Protocol, progress: Callable[[float], None] | None = None) -> Leaks:
    """Find classes (by label) and samples (by content: file and box, or feature vector) that train or val share with test.

    If samples have several labels, the shared classes are the labels of those test samples whose labels all train: a test sample
    with a label of its own is no leak.
    Files are compared by size; files of equal size by their last bytes; files that still agree by a hash of their content.

    Args:
        progress: called with the fraction of the work that is done.
    """
    train = np.union1d(protocol.rows(items, "train"), protocol.rows(items, "val"))
    test = np.setdiff1d(protocol.rows(items, "test"), train)
    classes = None
    if not protocol.shares_classes:
        classes = shared_classes(items, train, test)
    by_label = items.label_sets is not None
    if (x := items.x) is not None:
        images = same_content(train, test, [lambda row: hashlib.blake2b(x[row].tobytes()).digest()], progress)
        first = "" if not images else "row {} = row {}".format(*images[0])
        return Leaks(classes, images, first, "feature vector", by_label)
    if items.path is None:
        return Leaks(classes, (), by_label=by_label)
    box = [""] * len(items) if items.box is None else [str(box) for box in items.box.tolist()]
    keys_of_row: list[Callable[[int], Hashable]] = [
        lambda row, read=read: (read(file_of(items, row)), box[row]) for read in (size_of, tail_of, hash_of)
    ]
    try:
        images = same_content(train, test, keys_of_row, progress)
    except OSError as error:
        raise LikewiseError(
            f"leaks: {error.filename or 'an image'} cannot be read ({error.strerror}); check root and the paths"
        ) from None
    first = "" if not images else " = ".join(items.path[row] for row in images[0])
    return Leaks(classes, images, first, by_label=by_label)


def shared_classes(items: Items, train: Int[np.ndarray, "n"], test: Int[np.ndarray, "m"]) -> tuple[str, ...]:
    """Return the names of the classes that are in both; with several labels, the labels of test rows whose labels all train."""
    if items.label_name is None:
        return tuple(items.class_name[c] for c in np.intersect1d(items.y[train], items.y[test]))
    trained = np.unique(sample_labels(items, items.y[train])[1])
    sample, label = sample_labels(items, items.y[test])
    is_new = np.bincount(sample[~np.isin(label, trained)], minlength=len(test)) > 0
    return tuple(items.label_name[one] for one in np.unique(label[~is_new[sample]]))


def same_content(
    train: Int[np.ndarray, "n"],
    test: Int[np.ndarray, "m"],
    keys_of_row: list[Callable[[int], Hashable]],
    progress: Callable[[float], None] | None = None,
) -> tuple[tuple[int, int], ...]:
    """Return (train row, test row) for every test row that equals a train row (the first such) under all key functions."""
    sides = [train.tolist(), test.tolist()]
    rows = list(dict.fromkeys(sides[0] + sides[1]))

    def in_both(known: dict[int, tuple]) -> set[tuple]:
        one, other = ({known[row] for row in side if row in known} for side in sides)
        return one & other

    key = dict(zip(rows, staged_keys(rows, keys_of_row, in_both, progress), strict=True))
    both = in_both({row: found for row, found in key.items() if len(found) == len(keys_of_row)})
    first: dict[tuple, int] = {}
    for row in sides[0]:
        first.setdefault(key[row], row)
    return tuple((first[key[row]], row) for row in sides[1] if key[row] in both)


def describe_leaks(found: Leaks) -> str:
    """Return a message about the leakage that was found."""
    messages = []
    if found.classes:
        shown = ", ".join(found.classes[:3]) + (", ..." if len(found.classes) > 3 else "")
        one, many = ("label", "labels") if found.by_label else ("class", "classes")
        messages.append(f"{_are(len(found.classes), one, many)} ({shown})")
    if found.images:
        messages.append(f"{_are(len(found.images), found.noun, found.noun + 's')} (first: {found.first})")
    if messages:
        return "; ".join(messages)
    if found.by_label and found.classes is not None:
        return f"train and test share no {found.noun}, and every test sample has a label that does not train"
    return f"train and test share {'' if found.classes is None else 'no class and '}no {found.noun}"


def _are(count: int, one: str, many: str) -> str:
    are = f"{one} of the test split is" if count == 1 else f"{many} of the test split are"
    return f"{count:,} {are} also in training (train or val)"
