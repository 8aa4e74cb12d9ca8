"""Helpers that noise models share: the selection of the samples that get a wrong label."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.errors import LikewiseError

MAX_TRANSITION_CLASSES = 4096
"""Largest number of classes whose table of probabilities is made: it has a cell for every pair of classes."""


def check_share(owner: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise LikewiseError(f"{owner}: share must be between 0 and 1, got {share}")


def choose(count: int, share: float, exact: bool, rng: np.random.Generator) -> Int[np.ndarray, "n"]:
    """Return the positions of samples that get a wrong label: exactly round(share * count), or each with probability `share`."""
    if exact:
        return rng.permutation(count)[: round(share * count)]
    return np.flatnonzero(rng.random(count) < share)


def number_classes(
    owner: str, y: Int[np.ndarray, "N"], share: float
) -> tuple[Int[np.ndarray, "C"], Int[np.ndarray, "N"]]:
    """Return the distinct classes, and the position of each label among them. Raise if `share` > 0 and there is one class."""
    classes, place = np.unique(y, return_inverse=True)
    if share and len(classes) < 2:
        raise LikewiseError(
            f"{owner}: wrong labels need at least two classes, got {len(classes)}; use data with more classes, or share=0"
        )
    return classes, place


def check_transition_size(name: str, classes: Int[np.ndarray, "C"]) -> int:
    """Return the number of classes; raise if a table of all pairs of them has no use or no room."""
    if not 2 <= len(classes) <= MAX_TRANSITION_CLASSES:
        raise LikewiseError(
            f"{name}: scores can be corrected for known noise among 2 to {MAX_TRANSITION_CLASSES} classes, got {len(classes)}; "
            "use --correct-test-labels audit, or a reviewed subset"
        )
    return len(classes)
