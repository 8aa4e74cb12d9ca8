"""Helpers that noise models share: the selection of the samples that get a wrong label."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.errors import LikewiseError


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
