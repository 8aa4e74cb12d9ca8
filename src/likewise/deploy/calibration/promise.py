"""The promise of a threshold in one or two sentences, for pages and model cards."""

from __future__ import annotations

import math

from likewise.deploy.calibration.false_accepts import PROMISE_LEVEL
from likewise.runs.calibration import Threshold

PROMISE_WORDS = {
    ("pair", "false accepts"): "at most {} of pairs of images of two classes are taken for one class",
    (
        "unknown",
        "false accepts",
    ): "at most {} of images of a class that is not in the gallery are taken for a known class",
    (
        "pair",
        "precision",
    ): "at least {} of accepted pairs show one class, if such pairs are as frequent as in validation",
    (
        "unknown",
        "precision",
    ): "at least {} of accepted images get the right class, if the class of every image is in the gallery",
}
"""Kind and aim of a threshold -> its promise; {} is the rate."""

ACCEPTED_WORDS = {"pair": "pairs of one class", "unknown": "images of known classes"}
"""Kind of a threshold -> what should be accepted."""


def promise(threshold: Threshold, kind: str = "unknown") -> str:
    """Return the promise of a threshold ("pair" or "unknown") in words, or why there is none."""
    if threshold.value is None:
        return f"No threshold: {threshold.reason}."
    rate = 1 - threshold.rate if threshold.aim == "precision" else threshold.rate
    words = PROMISE_WORDS[kind, threshold.aim].format(percent(rate))
    found = f"Among {ACCEPTED_WORDS[kind]}, {percent(threshold.true_accepts)} are accepted."
    first = f"On new classes like the {threshold.classes} validation classes, in {percent(PROMISE_LEVEL)} of draws, {words}."
    return first if math.isnan(threshold.true_accepts) else f"{first} {found}"


def percent(share: float) -> str:
    """Return a share in percent with three digits at most."""
    return f"{100 * share:.3g} %"
