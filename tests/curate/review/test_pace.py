"""Pace of a reviewer: what counts as work, and from how many labels it is measured."""

import pytest

from likewise.curate.audit.forecast import SECONDS_PER_DECISION
from likewise.curate.review.plan import Pace, PaceMeter
from likewise.curate.review.store import Decision, Stored

FLAGGED = {str(row) for row in range(100)}


def history(*acts):
    """Return stored decisions: each act has its second and the items that it decides at once; an item "-1" is an undo of 1."""
    found = []
    for second, items in acts:
        bulk = len(found) + 1 if len(items) > 1 else None
        for item in items:
            time = f"2026-11-18T04:{int(second) // 60:02d}:{second % 60:06.3f}Z"
            choice = "undo" if item.startswith("-") else "keep"
            name = item.removeprefix("-")
            one = Decision(len(found) + 1, time, "ann", "pair" if "x" in item else "sample", name, choice, "", "")
            found.append(Stored(one, bulk))
    return found


def measure_pace(history, current):
    """Return the pace of a reviewer who stored this."""
    meter = PaceMeter(FLAGGED)
    for one in history:
        meter.add(one)
    return meter.pace(current)


def test_by_hand():
    many = [str(row) for row in range(24)]
    made = history((0, ["50"]), (3, ["51"]), (15, many), (200, ["52"]), (202.5, ["53"]), (210, ["7x"]), (214, ["54"]))
    current = {one.decision.id for one in made}
    # 51 after 3 s, 24 labels after 12 s, 53 after 2.5 s, 54 after 4 s; 50 is the first, 52 follows a break, 7x is a pair
    assert measure_pace(made, current) == Pace(pytest.approx(21.5 / 27), 27)


def test_a_minute_is_work_and_more_is_a_break():
    ten = [str(row) for row in range(10)]
    for second, seconds in ((60, 6.0), (60.001, None)):
        made = history((0, ["50"]), (second, ten))
        found = measure_pace(made, {one.decision.id for one in made})
        assert found == (Pace(SECONDS_PER_DECISION, 0) if seconds is None else Pace(pytest.approx(seconds), 10))


def test_the_time_of_undone_decisions_counts_and_their_labels_do_not():
    ten = [str(row) for row in range(10)]
    made = history((0, ["50"]), (5, ["51"]), (7, ["-51"]), (10, ["51"]), (20, ten))
    current = {one.decision.id for one in made} - {2, 3}
    assert measure_pace(made, current) == Pace(pytest.approx(20 / 11), 11)


def test_few_labels_have_the_assumed_pace():
    assert measure_pace([], set()) == Pace(SECONDS_PER_DECISION, 0)
    made = history((0, ["50"]), (1, [str(row) for row in range(9)]))
    assert measure_pace(made, {one.decision.id for one in made}).measured == 0
