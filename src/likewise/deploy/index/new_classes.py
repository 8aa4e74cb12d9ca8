"""Classes that are added to an index: the known classes that each will be confused with, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaincinv

from likewise.deploy.index.decision import IndexCalibration
from likewise.deploy.index.index import Hit

MIN_NEW_IMAGES = 10
"""Smallest number of images of a new class for shares: below it the 95 % interval of "0 images" reaches beyond 31 %."""
MISSED_SHARE = 0.05
"""Share of cases that a 95 % interval misses."""


def add_with_confusions(
    calibrated: IndexCalibration,
    z: Float[np.ndarray, "n D"],
    names: Sequence[str],
    add: Callable[[], Int[np.ndarray, "n"]],
) -> tuple[Int[np.ndarray, "n"], list[dict]]:
    """Add rows with these embeddings and class names by `add`; return their row numbers and the report of every new class.

    Returns:
        For every class that the index did not have: class, images, reason ("" or why there are no shares), `before`: the
        known classes that its images are taken for while it is not in the index (the nearest row reaches the threshold), and
        `after`: the other classes that they are confused with once all images of it are in the index, each compared with the
        other rows. Both are lists of class, images, share, low and high (95 % interval).
    """
    index, known = calibrated.index, used_classes(calibrated)
    new = [place for place, name in enumerate(names) if name not in known]
    before = nearest_accepted(calibrated, z[new], None)
    row = add()
    after = nearest_accepted(calibrated, z[new], index.rows.places(row[new].tolist()).tolist() if new else [])
    reports = []
    for name in dict.fromkeys(names[place] for place in new):
        own = [number for number, place in enumerate(new) if names[place] == name]
        reason = too_few(len(own)) if before is not None and after is not None else no_threshold(calibrated)
        found = {"class": name, "images": len(own), "reason": reason, "before": [], "after": []}
        if not reason:
            assert before is not None and after is not None
            found["before"] = shares((before[number] for number in own), name)
            found["after"] = shares((after[number] for number in own), name)
        reports.append(found)
    return row, reports


def used_classes(calibrated: IndexCalibration) -> set[str]:
    """Return the names of the classes that have a row."""
    rows = calibrated.index.rows
    return {rows.class_name[label] for label in np.unique(rows.table["label"][rows.here])}


def nearest_accepted(
    calibrated: IndexCalibration, z: Float[np.ndarray, "n D"], own: Sequence[int] | None
) -> list[str | None] | None:
    """Return the class of the nearest row of every embedding if it reaches the threshold, otherwise None.

    None in place of the list: there is no threshold. `own`: the place of each embedding itself, which is excluded.
    """
    calibration = calibrated.current() if len(z) else None
    if calibration is None or calibration.unknown.value is None:
        return None
    index, least = calibrated.index, calibration.unknown.value

    def accepted(hits: list[Hit]) -> str | None:
        return index.rows.label(hits[0].place) if hits and hits[0].similarity >= least else None

    return [accepted(hits) for hits in index.find(z, 1, but=own)]


def shares(nearest: Iterable[str | None], name: str) -> list[dict]:
    """Return the classes other than `name`, most frequent first, with their share of all and its 95 % interval."""
    everything = list(nearest)
    count = Counter(one for one in everything if one is not None and one != name)
    found = []
    for other, images in sorted(count.items(), key=lambda one: (-one[1], one[0])):
        low, high = binomial_interval(images, len(everything))
        found.append({"class": other, "images": images, "share": images / len(everything), "low": low, "high": high})
    return found


def binomial_interval(count: int, total: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934): it covers the share in 95 % of cases or more."""
    tail = MISSED_SHARE / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return low, high


def too_few(images: int) -> str:
    """Return why a class of this many images has no shares; "" if it has."""
    return "" if images >= MIN_NEW_IMAGES else f"no estimate: {MIN_NEW_IMAGES} images are needed"


def no_threshold(calibrated: IndexCalibration) -> str:
    """Return why there is no threshold."""
    calibration = calibrated.current()
    reason = calibrated.hint if calibration is None else calibration.unknown.reason
    return f"no estimate: {reason}" if reason else "no estimate: the index is not calibrated"


def sentences(report: dict) -> list[str]:
    """Return the report of a new class as lines of text."""
    head = f"new class {report['class']} ({report['images']} image{'s' * (report['images'] != 1)})"
    if report["reason"]:
        return [f"{head}: {report['reason']}"]
    return [
        f"{head}:",
        f"  taken for a known class before it was added: {listed(report['before'], report['images'])}",
        f"  confused with another class now: {listed(report['after'], report['images'])}",
    ]


def listed(found: list[dict], images: int) -> str:
    """Return classes and their shares of `images` images as text."""
    parts = [
        f"{one['class']} {100 * one['share']:.0f} % ({100 * one['low']:.0f} to {100 * one['high']:.0f})"
        for one in found
    ]
    return ", ".join(parts) or f"none of them (0 to {100 * binomial_interval(0, images)[1]:.0f} %)"
