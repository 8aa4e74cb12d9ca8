"""Pace of a reviewer: seconds per flagged label, measured from the times of their decisions."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from likewise.audit.forecast import SECONDS_PER_DECISION
from likewise.web.review.store import Stored

MAX_GAP_SECONDS = 60.0
"""Longest time between two decisions that counts as work; a longer one is a break."""

MIN_MEASURED_LABELS = 10
"""Number of labels from which a pace is measured; with fewer it is assumed."""


class Pace(NamedTuple):
    """Seconds per flagged label, and the number of labels that it was measured with; 0: the pace is assumed."""

    seconds: float
    measured: int


def measure_pace(history: Sequence[Stored], current: Collection[int], flagged: Collection[str]) -> Pace:
    """Return the pace of one reviewer.

    Decisions that were made at once are one act. The time of an act is the gap to the act before it, of any kind; the first act
    and acts after a break have no known time and do not count. The time of undone decisions and of undos counts, their labels do
    not.
    Formula: (sum of the gaps before acts about flagged labels) / (number of flagged labels that these acts decide)

    Args:
        history: everything that the reviewer stored, in order of time.
        current: ids of the current decisions.
        flagged: items of flagged labels.
    """
    seconds, labels, before = 0.0, 0, None
    for _, act in itertools.groupby(history, key=lambda one: one.bulk or -one.decision.id):
        made = [one.decision for one in act]
        begin, end = (datetime.fromisoformat(made[at].time).timestamp() for at in (0, -1))
        gap, before = (None if before is None else begin - before), end
        if gap is not None and 0 <= gap <= MAX_GAP_SECONDS and any(d.item in flagged for d in made):
            seconds += gap
            labels += sum(d.item in flagged and d.id in current for d in made)
    if labels < MIN_MEASURED_LABELS:
        return Pace(SECONDS_PER_DECISION, 0)
    return Pace(seconds / labels, labels)
