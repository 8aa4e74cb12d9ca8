"""What a similarity means in an index: levels for "same", "similar" and "different"."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from likewise.deploy.calibration.similarities import compare
from likewise.deploy.index.snapshot import Rows, untrained_places
from likewise.runs.calibration import Calibration

SAME_SHARE, SIMILAR_SHARE = 0.1, 0.5
"""Share of images that have an image of another class as near as the level "same", and as near as the level "similar"."""
SAMPLED_ROWS, MAX_PAIRS = 1000, 100_000_000
"""Most images, and most similarities, from which the levels are taken."""
MIN_SAMPLED_ROWS = 20
"""Fewest images from which levels are taken."""


class Levels(NamedTuple):
    """The lowest similarities that are read as the same class and as similar, and the meaning of the first in words."""

    same: float
    similar: float
    source: str


def levels_of(rows: Rows, calibration: Calibration | None, trained: Collection[str] = ()) -> Levels | None:
    """Return the levels of an index, from the nearest image of another class of each row; None with too few rows or classes.

    None, too, if rows have several labels each: rows that share some of them are neither the same nor different.

    They describe the rows as they are labelled. A calibrated run has a threshold with a promise, which is then the level "same".

    Args:
        trained: classes that trained the network: left out where other classes remain, because training moved them apart.
    """
    label, here = rows.table["label"], np.flatnonzero(rows.here)
    if rows.labels is not None or len(here) < MIN_SAMPLED_ROWS or len(np.unique(label[here])) < 2:
        return None
    most = min(SAMPLED_ROWS, max(MIN_SAMPLED_ROWS, MAX_PAIRS // len(here)))
    sample = np.random.default_rng(0).permutation(untrained_places(rows, trained))[:most]
    near = nearest_of_others(rows, sample, here)
    same, similar = (float(np.quantile(near, 1 - share)) for share in (SAME_SHARE, SIMILAR_SHARE))
    source = f"{100 * SAME_SHARE:.0f} % of the images here have an image of another class that is this similar"
    threshold = None if calibration is None else calibration.unknown.value
    if threshold is not None:
        same, source = threshold, "the threshold of the calibrated run"
    return Levels(same, min(same, similar), source)


def nearest_of_others(rows: Rows, places: Int[np.ndarray, "n"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "n"]:
    """Return for each place the similarity of its nearest row of another class, among these rows."""
    label, gallery = rows.table["label"], rows.vectors[among]
    found = []
    for part in np.array_split(places, max(1, len(places) * len(among) // 2**22)):
        sim = compare(rows.vectors[part], gallery, rows.similarity)
        sim[label[part][:, None] == label[among]] = -np.inf
        found.append(sim.max(1))
    return np.concatenate(found)
