"""Which samples have their picture in the page, and the pictures themselves."""

import dataclasses
from collections import Counter

import numpy as np
from likewise.config import Report

from likewise.data import load
from likewise.report.images import choose_image_places, with_images
from likewise.report.records import Pool, RunView
from likewise.report.section import Studies
from likewise.report.target import ReportTarget


def test_pictures_go_to_what_is_shown_and_then_round_the_classes():
    label = np.repeat([0, 1, 2], [20, 10, 2])
    places = choose_image_places(label, [7, 3, 7], 11)
    assert places[:2].tolist() == [7, 3] and len(set(places.tolist())) == 11
    assert min(Counter(label[choose_image_places(label, [], 6)].tolist()).values()) == 2
    assert sorted(choose_image_places(label, [1], 99)) == list(range(32))


def test_pictures_come_from_the_data_and_are_as_many_as_are_wanted(pictures):
    items = load(str(pictures))
    rows = np.arange(18, 36)
    pool = Pool("toy", "test", rows, items.y[rows] - 3, items.class_name[3:], (), None)
    one, seen, said = ReportTarget("me", data=items, items=items), RunView("me", 0, "", {}, {}, ""), []
    studies = Studies([one], [seen], [pool], Report(quiet=True), [])
    shown = with_images(0, studies, [2, 0], 4, said.append)
    assert {0, 2} <= set(shown.images) and len(shown.images) == 4 and studies.notes == [] and said == []
    gone = dataclasses.replace(studies, targets=[ReportTarget("me", data=dataclasses.replace(items, root="/nowhere"))])
    assert with_images(0, gone, [0], 4, said.append).images == {}
    assert studies.notes[0].endswith("if the data has moved, give its new place with --data or --root")
