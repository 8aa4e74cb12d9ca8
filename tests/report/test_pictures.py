"""The pictures that a report shows."""

import dataclasses

import numpy as np

from likewise.config import Report
from likewise.data import load
from likewise.report.opened import Opened
from likewise.report.pictures import with_doubts, with_pictures
from likewise.report.records import Doubt, Noise, Pool, Viewed

QUIET = Report(quiet=True)


def test_pictures_come_from_the_data_and_are_as_many_as_are_wanted(pictures):
    items = load(str(pictures))
    rows = np.arange(18, 36)
    pool = Pool("toy", "test", rows, items.y[rows] - 3, items.class_name[3:], (), None)
    one, seen = Opened("me", data=items, items=items), Viewed("me", 0, "", {}, {}, "", ())
    said = []
    shown, note = with_pictures(pool, 0, [one], [seen], [2, 0], 4, QUIET, said.append)
    assert {0, 2} <= set(shown.picture) and len(shown.picture) == 4 and note == "" and said == []
    gone = dataclasses.replace(items, root="/nowhere")
    shown, note = with_pictures(pool, 0, [Opened("me", data=gone)], [seen], [0], 4, QUIET, said.append)
    assert shown.picture == {} and note.endswith("if it has moved, say where it is: --data, --root")


def test_doubted_labels_get_theirs(pictures):
    doubts = tuple(Doubt(row, "a", "", 0.5, 1.0, None, "") for row in (3, 7))
    noise = Noise("", "", None, doubts=doubts)
    seen = Viewed("me", 0, "", {}, {}, "", (), noise=noise)
    found = with_doubts(Opened("me", data=load(str(pictures))), seen, QUIET)
    assert all(doubt.picture is not None for doubt in found.noise.doubts)
    assert with_doubts(Opened("me"), seen, QUIET) is seen
