"""What the parts of a data set share that they should not: classes, and samples whose content is the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from likewise.contracts import Protocol
from likewise.data.images import file_of
from likewise.types import Items, LikewiseError

THREADS = 8
BLOCK = 64  # files that a thread is handed at a time
TAIL = 4096  # bytes; of two pictures of one size the ends nearly always differ, headers may not


@dataclass(frozen=True)
class Leaks:
    """What train and val share with test. Rows that a protocol puts into both, as a gallery, are none."""

    classes: tuple[str, ...] | None  # names, in order; None: the protocol shares them by design
    images: tuple[tuple[int, int], ...]  # each test row seen in training, behind the first row that is the same
    first: str = ""  # the first of these, by name
    noun: str = "image"  # what is shared, in a word


def leaks(items: Items, protocol: Protocol, progress: Callable[[float], None] | None = None) -> Leaks:
    """Find what train and val share with test: classes by label, samples by content (file and box, or feature vector).

    Files are compared by size, those that agree by their last bytes, and what then still agrees by a hash of the whole.

    Args:
        progress: called with the share of the work that is done.
    """
    train = np.union1d(protocol.rows(items, "train"), protocol.rows(items, "val"))
    test = np.setdiff1d(protocol.rows(items, "test"), train)
    classes = None
    if not protocol.shares_classes:
        classes = tuple(items.class_name[c] for c in np.intersect1d(items.y[train], items.y[test]))
    if (x := items.x) is not None:
        images = same_content(train, test, [lambda row: hashlib.blake2b(x[row].tobytes()).digest()], progress)
        first = "" if not images else "row {} = row {}".format(*images[0])
        return Leaks(classes, images, first, "feature vector")
    if items.path is None:
        return Leaks(classes, ())
    box = [""] * len(items) if items.box is None else [str(box) for box in items.box.tolist()]
    sifts: list[Callable[[int], Hashable]] = [
        lambda row, read=read: (read(file_of(items, row)), box[row]) for read in (size_of, tail_of, hash_of)
    ]
    try:
        images = same_content(train, test, sifts, progress)
    except OSError as error:
        raise LikewiseError(
            f"leaks: {error.filename or 'a picture'} cannot be read ({error.strerror}); check root and the paths"
        ) from None
    first = "" if not images else " = ".join(items.path[row] for row in images[0])
    return Leaks(classes, images, first)


def same_content(
    train: Int[np.ndarray, "n"],
    test: Int[np.ndarray, "m"],
    sifts: list[Callable[[int], Hashable]],
    progress: Callable[[float], None] | None = None,
) -> tuple[tuple[int, int], ...]:
    """(train row, test row) of every test row for which all sifts say the same as for a train row, the first such one.

    Only rows that agree with one of the other side under a sift reach the next, so the dear ones come last.
    """
    sides = [train.tolist(), test.tolist()]
    key: dict[int, tuple] = dict.fromkeys(sides[0] + sides[1], ())
    with ThreadPoolExecutor(THREADS) as pool:
        for number, sift in enumerate(sifts):
            rows = sides[0] + sides[1]
            blocks = [rows[at : at + BLOCK] for at in range(0, len(rows), BLOCK)]
            found = pool.map(lambda block, sift=sift: [sift(row) for row in block], blocks)
            for done, (block, values) in enumerate(zip(blocks, found, strict=True), 1):
                for row, value in zip(block, values, strict=True):
                    key[row] = (*key[row], value)
                if progress is not None:
                    progress((number + done / len(blocks)) / len(sifts))
            both = {key[row] for row in sides[0]} & {key[row] for row in sides[1]}
            sides = [[row for row in side if key[row] in both] for side in sides]
    if progress is not None:
        progress(1.0)
    first: dict[tuple, int] = {}
    for row in sides[0]:
        first.setdefault(key[row], row)
    return tuple((first[key[row]], row) for row in sides[1])


def size_of(file: str) -> int:
    return os.stat(file).st_size


def tail_of(file: str) -> bytes:
    with open(file, "rb", buffering=0) as content:
        content.seek(max(0, os.fstat(content.fileno()).st_size - TAIL))
        return hashlib.blake2b(content.read(TAIL)).digest()


def hash_of(file: str) -> bytes:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "blake2b").digest()


def say_leaks(found: Leaks) -> str:
    """One plain sentence about what was found."""
    said = []
    if found.classes:
        shown = ", ".join(found.classes[:3]) + (", ..." if len(found.classes) > 3 else "")
        said.append(f"{_are(len(found.classes), 'class', 'classes')} ({shown})")
    if found.images:
        said.append(f"{_are(len(found.images), found.noun, found.noun + 's')} (first: {found.first})")
    return "; ".join(said) or f"train and test share {'' if found.classes is None else 'no class and '}no {found.noun}"


def _are(count: int, one: str, many: str) -> str:
    are = f"{one} of the test split is" if count == 1 else f"{many} of the test split are"
    return f"{count:,} {are} also in training (train or val)"
