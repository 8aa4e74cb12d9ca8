"""Training rows by class, the ways samplers draw among them, and the checks that samplers share."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.errors import LikewiseError


class ClassIndex:
    """Rows of every class with at least `least` of them. Here a class goes by its place among these, not by its label."""

    def __init__(self, labels: Int[np.ndarray, "N"], least: int = 1):
        order = np.argsort(labels, kind="stable")  # one sort: a mask per class would be classes x samples
        groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
        self.rows = [g for g in groups if len(g) >= least]
        self.size = np.array([len(g) for g in self.rows], dtype=np.int64)
        self.every = np.concatenate([*self.rows, np.zeros(0, np.int64)])
        self.of_row = np.full(len(labels), -1)
        self.of_row[self.every] = np.repeat(np.arange(len(self.rows)), self.size)

    def draw(self, classes: Int[np.ndarray, "*S"], rng: np.random.Generator) -> Int[np.ndarray, "*S"]:
        """A row of each of these classes, every draw on its own: a row may come twice."""
        begin = np.cumsum(self.size) - self.size
        return self.every[begin[classes] + rng.integers(self.size[classes])]

    def fill(self, classes: Int[np.ndarray, "S"], per_class: int, rng: np.random.Generator) -> Int[np.ndarray, "S P"]:
        """Rows for slots of these classes. A class in several slots gives each its own rows, as far as it has them."""
        drawn, slot, count = np.unique(classes, return_inverse=True, return_counts=True)
        turn = np.empty_like(slot)  # 0 in a class's first slot, 1 in its second
        turn[np.argsort(slot, kind="stable")] = np.arange(len(slot)) - np.repeat(np.cumsum(count) - count, count)
        shuffled = np.concatenate([rng.permutation(self.rows[c]) for c in drawn])
        size = self.size[drawn]
        begin = np.cumsum(size) - size
        inside = (turn[:, None] * per_class + np.arange(per_class)) % size[slot, None]
        return shuffled[begin[slot, None] + inside]

    def deal(self, slots: int, per_class: int, rng: np.random.Generator) -> Int[np.ndarray, "S P"]:
        """Rows for so many slots, a class each. A class comes again when all had their turn and it has rows left."""
        turns = np.maximum(self.size // per_class, 1)
        classes, turn = np.zeros(0, np.int64), 0
        while len(classes) < slots:
            left = np.flatnonzero(turns > turn % turns.max())
            classes = np.append(classes, rng.permutation(left)[: slots - len(classes)])
            turn += 1
        return self.fill(classes, per_class, rng)

    def pool(self, size: int, per_class: int, rng: np.random.Generator) -> Int[np.ndarray, "n"]:
        """About so many rows, dealt by class, none twice; all of them where there are no more."""
        return self.every if size >= len(self.every) else np.unique(self.deal(size // per_class, per_class, rng))


def candidate_batches(
    labels: Int[np.ndarray, "n"], count: int, batch: int, per_class: int, rng: np.random.Generator
) -> Int[np.ndarray, "M B"]:
    """So many mini-batches dealt by class from a pool with these labels: positions in the pool."""
    inside = ClassIndex(labels)
    return np.stack([inside.deal(batch // per_class, per_class, rng).reshape(-1) for _ in range(count)])


def usable_classes(
    owner: str, labels: Int[np.ndarray, "N"], why: str | None, lonely: str, class_names: tuple[str, ...] | None
) -> ClassIndex:
    """The classes to draw from. `why` says what needs class mates; where nothing does, lonely samples are drawn too."""
    if lonely not in ("error", "skip"):
        raise LikewiseError(f"{owner}: lonely must be 'error' or 'skip', got '{lonely}'")
    if why is None:
        return ClassIndex(labels)
    classes, size = np.unique(labels, return_counts=True)
    alone = classes[size == 1]
    if len(alone) and lonely == "error":
        first = class_names[alone[0]] if class_names else f"class {alone[0]}"
        raise LikewiseError(
            f"{owner}: {why} needs two samples of a class, but {len(alone)} of {len(classes)} classes have one (first: "
            f"{first}); remove them, or train without them, with lonely='skip' in {owner}(...)"
        )
    if len(alone) == len(classes):
        raise LikewiseError(f"{owner}: {why} needs two samples of a class, but no class has them; use Shuffled")
    return ClassIndex(labels, least=2)


def check_batch(owner: str, batch: int, per_class: int) -> None:
    if per_class < 1 or batch < 1 or batch % per_class:
        raise LikewiseError(f"{owner}: batch must be a multiple of per_class, got batch={batch}, per_class={per_class}")


def check_pool(owner: str, pool: int, batch: int, members: ClassIndex) -> None:
    """A pool larger than the data is no error: then the data is the pool."""
    if pool < batch:
        raise LikewiseError(f"{owner}: pool must be at least batch, got pool={pool}, batch={batch}; raise pool")
    if batch > len(members.every):
        raise LikewiseError(
            f"{owner}: batch must not exceed the training samples, got batch={batch} with {len(members.every)}; lower it"
        )


def check_candidates(owner: str, candidates: int, batch: int) -> None:
    if candidates < 1:
        raise LikewiseError(f"{owner}: candidates must be 1 or more, got {candidates}")
    if batch < 2:
        raise LikewiseError(f"{owner}: batch must be 2 or more to have a distribution, got {batch}; raise it")
