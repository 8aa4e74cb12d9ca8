"""Pace of a reviewer: seconds per flagged label, measured from the times of their decisions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from likewise.curate.audit.forecast import SECONDS_PER_DECISION
from likewise.curate.review.store import Stored

MAX_GAP_SECONDS = 60.0
"""Longest time between two decisions that counts as work; a longer one is a break."""

MIN_MEASURED_LABELS = 10
"""Number of labels from which a pace is measured; with fewer it is assumed."""


class Pace(NamedTuple):
    """Seconds per flagged label, and the number of labels that it was measured with; 0: the pace is assumed."""

    seconds: float
    measured: int


class PaceMeter:
    """Measures the pace of one reviewer from what they store, row by row, so that no row is read twice.

    Decisions that were made at once are one act. The time of an act is the gap to the act before it, of any kind; the first act
    and acts after a break have no known time and do not count. The time of undone decisions and of undos counts, their labels do
    not.
    Formula: (sum of the gaps before acts about flagged labels) / (number of flagged labels that these acts decide)

    Args:
        flagged: items of flagged labels.
    """

    def __init__(self, flagged: Collection[str]):
        self.flagged, self.seconds, self.rows = flagged, 0.0, 0
        self.timed: set[int] = set()  # ids of decisions about flagged labels, in acts with a known time
        self.act = self.counted = 0  # the last act, and the last act whose gap is in `seconds`; a bulk, or minus an id
        self.gap, self.end = 0.0, -math.inf

    def add(self, stored: Stored) -> None:
        """Add what the reviewer stored next."""
        one, act = stored.decision, stored.bulk or -stored.decision.id
        time = datetime.fromisoformat(one.time).timestamp()
        if act != self.act:
            self.act, self.gap = act, time - self.end
        self.end = time
        self.rows += 1
        if one.item not in self.flagged or not 0 <= self.gap <= MAX_GAP_SECONDS:
            return
        if act != self.counted:
            self.counted = act
            self.seconds += self.gap
        self.timed.add(one.id)

    def pace(self, current: Collection[int]) -> Pace:
        """Return the pace.

        Args:
            current: ids of the current decisions.
        """
        labels = len(self.timed.intersection(current))
        return Pace(SECONDS_PER_DECISION, 0) if labels < MIN_MEASURED_LABELS else Pace(self.seconds / labels, labels)


def measure_pace(history: Iterable[Stored], current: Collection[int], flagged: Collection[str]) -> Pace:
    """Return the pace of one reviewer; see `PaceMeter`.

    Args:
        history: everything that the reviewer stored, in order of time.
    """
    meter = PaceMeter(flagged)
    for one in history:
        meter.add(one)
    return meter.pace(current)
