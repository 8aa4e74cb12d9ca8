"""The promise of a threshold in one sentence, for the terminal, the pages and the model card."""

from __future__ import annotations

import math

from likewise.runs.calibration import Threshold

PROMISE_WORDS = {
    "pair": ("pairs of different classes", "pairs of one class", "are taken for the same class"),
    "unknown": (
        "images of classes that are not in the gallery",
        "images of known classes",
        "are taken for a known class",
    ),
}
"""Kind of a threshold -> who must not be accepted, who should be, and what accepting means."""


def promise(threshold: Threshold, kind: str = "unknown") -> str:
    """Return what a threshold promises in one sentence, or why there is none."""
    if threshold.value is None:
        return f"No threshold: {threshold.reason}."
    strangers, own, accepted = PROMISE_WORDS[kind]
    if threshold.aim == "precision":
        first = f"at least {percent(1 - threshold.rate)} of those that {accepted} are so rightly"
    else:
        first = f"at most {percent(threshold.rate)} of {strangers} {accepted}"
    found = "" if math.isnan(threshold.true_accepts) else f"; {percent(threshold.true_accepts)} of {own} are accepted"
    return f"With 95 % confidence, {first}, by {threshold.classes} validation classes{found}."


def percent(share: float) -> str:
    """Return a share in percent with as many digits as it needs."""
    return f"{100 * share:.3g} %"
