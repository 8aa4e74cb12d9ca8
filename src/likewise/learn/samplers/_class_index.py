"""Index from class to training rows, with several ways to draw rows; argument checks and draws that samplers share."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Int

from likewise.core.errors import LikewiseError

Lonely = Literal["error", "skip"]


class ClassIndex:
    """Rows of every class that has at least `least` rows. These classes are numbered 0, 1, ...; the numbers are not labels.

    `rows[c]` are the rows of class c, `size[c]` is their number, `every` are all rows, and `of_row` is the class of every row of
    the data set (-1: its class is too small).
    """

    def __init__(self, labels: Int[np.ndarray, "N"], least: int = 1):
        order = np.argsort(labels, kind="stable")  # one sort: a mask per class would be classes x samples
        groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
        self.rows = [g for g in groups if len(g) >= least]
        self.size = np.array([len(g) for g in self.rows], dtype=np.int64)
        self.every = np.concatenate([*self.rows, np.zeros(0, np.int64)])
        self.of_row = np.full(len(labels), -1)
        self.of_row[self.every] = np.repeat(np.arange(len(self.rows)), self.size)

    def draw(self, classes: Int[np.ndarray, "*S"], rng: np.random.Generator) -> Int[np.ndarray, "*S"]:
        """Return one random row for each of these classes, drawn with replacement."""
        begin = np.cumsum(self.size) - self.size
        return self.every[begin[classes] + rng.integers(self.size[classes])]

    def fill(self, classes: Int[np.ndarray, "S"], per_class: int, rng: np.random.Generator) -> Int[np.ndarray, "S P"]:
        """Return `per_class` random rows for every slot, given the class of each slot.

        Slots of the same class get different rows; rows repeat only if the class is too small.
        """
        drawn, slot, count = np.unique(classes, return_inverse=True, return_counts=True)
        turn = np.empty_like(slot)  # 0 in the first slot of a class, 1 in its second, ...
        turn[np.argsort(slot, kind="stable")] = np.arange(len(slot)) - np.repeat(np.cumsum(count) - count, count)
        shuffled = np.concatenate([rng.permutation(self.rows[c]) for c in drawn])
        size = self.size[drawn]
        begin = np.cumsum(size) - size
        inside = (turn[:, None] * per_class + np.arange(per_class)) % size[slot, None]
        return shuffled[begin[slot, None] + inside]

    def deal(self, slots: int, per_class: int, rng: np.random.Generator) -> Int[np.ndarray, "S P"]:
        """Return `per_class` rows for each of `slots` random classes.

        A class is chosen again only after all other classes, and only if it has unused rows, as long as any class has some.
        """
        turns = np.maximum(self.size // per_class, 1)
        classes, turn = np.zeros(0, np.int64), 0
        while len(classes) < slots:
            left = np.flatnonzero(turns > turn % turns.max())
            classes = np.append(classes, rng.permutation(left)[: slots - len(classes)])
            turn += 1
        return self.fill(classes, per_class, rng)

    def pool(self, size: int, per_class: int, rng: np.random.Generator) -> Int[np.ndarray, "n"]:
        """Return about `size` different rows, chosen class by class; all rows if there are not more."""
        return self.every if size >= len(self.every) else np.unique(self.deal(size // per_class, per_class, rng))


def candidate_batches(
    labels: Int[np.ndarray, "n"], count: int, batch: int, per_class: int, rng: np.random.Generator
) -> Int[np.ndarray, "M B"]:
    """Return `count` candidate batches, drawn class by class from a pool with these labels, as positions in the pool."""
    pool = ClassIndex(labels)
    return np.stack([pool.deal(batch // per_class, per_class, rng).reshape(-1) for _ in range(count)])


def usable_classes(
    owner: str, labels: Int[np.ndarray, "N"], why: str | None, lonely: Lonely, class_names: tuple[str, ...] | None
) -> ClassIndex:
    """Return the classes that a sampler may draw from.

    Args:
        owner: name of the sampler, for errors.
        why: setting that needs two samples of a class, for errors; None: classes with a single sample are allowed.
        lonely: what to do with classes of a single sample: "error", or "skip" to leave them out.
        class_names: names of the classes, for errors.
    """
    if why is None:
        return ClassIndex(labels)
    classes, size = np.unique(labels, return_counts=True)
    alone = classes[size == 1]
    if len(alone) and lonely == "error":
        first = class_names[alone[0]] if class_names else f"class {alone[0]}"
        raise LikewiseError(
            f"{owner}: {why} needs two samples of every class, but {len(alone)} of {len(classes)} classes have one (first: "
            f"{first}); remove these classes, or train without them: lonely='skip' in {owner}(...)"
        )
    if len(alone) == len(classes):
        raise LikewiseError(f"{owner}: {why} needs two samples of a class, but every class has one; use Shuffled")
    return ClassIndex(labels, least=2)


def check_batch(owner: str, batch: int, per_class: int, name: str = "per_class") -> None:
    """Raise unless a batch holds a whole number of classes, or of other groups of that size with the argument `name`."""
    if batch % per_class:
        raise LikewiseError(
            f"{owner}: batch must be a multiple of {name}, got batch={batch}, {name}={per_class}; "
            f"try batch={max(1, batch // per_class) * per_class}"
        )


def check_pool(owner: str, pool: int, batch: int, members: ClassIndex) -> None:
    """Raise unless batch <= pool and batch <= number of rows. A pool larger than the data is allowed: it is then all rows."""
    if pool < batch:
        raise LikewiseError(f"{owner}: pool must be at least batch, got pool={pool}, batch={batch}; raise pool")
    if batch > len(members.every):
        raise LikewiseError(
            f"{owner}: batch must not exceed the training samples, got batch={batch} with {len(members.every)}; lower batch"
        )


def deal_from(pack: list[int], everyone: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """Remove and return the next `count` entries of a shuffled list; add a new shuffled copy behind them when it is too short.

    The next entry is the last of the list, so that a draw does not move the others. The entries that are still in the list come
    last in the new copy, so that they do not repeat at once.
    """
    while len(pack) < count:
        left, fresh = set(pack), rng.permutation(everyone).tolist()
        pack[:0] = reversed([v for v in fresh if v not in left] + [v for v in fresh if v in left])
    return [pack.pop() for _ in range(count)]


def some_of(rows: Int[np.ndarray, "n"], count: int, rng: np.random.Generator) -> list[int]:
    """Return about `count` different random rows in random order; all rows if there are few. Does not shuffle a long list."""
    if len(rows) <= 4 * count:
        return rng.permutation(rows)[:count].tolist()
    return list(dict.fromkeys(rows[rng.integers(len(rows), size=count)].tolist()))
