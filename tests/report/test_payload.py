"""Blocks of a page: read back, they say what the facts say; and no text gets out of its block."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from report.made_facts import made_facts

from likewise.report import payload as packed
from likewise.report.payload import (
    captions,
    examples,
    first_blocks,
    many_blocks,
    near_shown,
    pictures,
    plain,
    quantised,
    said,
)
from likewise.report.records import Confused, Pool


def read(block, kind):
    return np.frombuffer(base64.b64decode(block.text), kind)


def test_json_cannot_leave_its_element_and_numbers_that_are_none_are_null():
    block = said(
        "x", {"a": "</script><!-- \u2028", "b": [float("nan"), float("inf"), 0.1], 3: np.float32(2), "c": "\ud800"}
    )
    assert "<" not in block.text and "\u2028" not in block.text
    assert json.loads(block.text) == {"a": "</script><!--  ", "b": [None, None, 0.1], "3": 2.0, "c": "?"}
    assert plain((np.arange(2), np.bool_(True))) == [[0, 1], True]


def test_places_are_kept_to_one_scale():
    place = np.array([[0.0, 5.0], [10.0, 7.5], [5.0, 6.0], [np.nan, 5.0]], np.float32)
    kept = quantised(place)
    by_hand = [[0, 0], [65535, 16384], [32768, 6554], [32768, 0]]
    assert kept.dtype == np.uint16 and np.abs(kept.astype(int) - by_hand).max() <= 1
    assert quantised(np.zeros((3, 2), np.float32)).tolist() == [[0, 0]] * 3


def test_neighbours_and_labels_come_back():
    facts = made_facts(300, 10, 20)
    found = {block.name: block for block in many_blocks(facts)}
    pool, run = facts.pools[0], facts.runs[1]
    assert (read(found["label-0"], "<u2") == pool.label).all() and (read(found["row-0"], "<i4") == pool.row).all()
    assert json.loads(found["caption-0"].text) == list(pool.caption)
    assert (read(found["near-1"], "<u2").reshape(300, -1) == run.near).all()
    told = json.loads(next(first_blocks(facts)).text)["runs"][1]["near"]
    sim = told["low"] + read(found["similarity-1"], "u1") / 255 * (told["high"] - told["low"])
    assert np.abs(sim.reshape(300, -1) - run.near_sim).max() < 0.002
    assert set(found) >= {f"map-{i}-{name}" for i in (0, 1) for name in ("PCA", "t-SNE")}


def test_rows_that_are_places_take_no_room_and_labels_little():
    facts = made_facts(300, 10, 20)
    found = {block.name for block in many_blocks(replace(facts, pools=(replace(facts.pools[0], row=np.arange(300)),)))}
    assert "label-0" in found and "row-0" not in found
    assert [packed.index_kind(many) for many in (65535, 65536)] == [np.uint16, np.uint32]


def test_two_models_are_compared_by_a_metric_of_their_own():
    _, more = first_blocks(made_facts(100, 5, 5))
    (told,) = json.loads(more.text)["compared"]
    assert (told["a"], told["b"], told["metric"]) == (0, 1, "R@1") and len(told["queries"]) == 5


def test_nobody_is_the_largest_number():
    facts = made_facts(50, 5, 0)
    near = facts.runs[0].near.copy()
    near[3, 2] = -1
    facts = replace(facts, runs=(replace(facts.runs[0], near=near),))
    found = {block.name: block for block in many_blocks(facts)}
    assert read(found["near-0"], "<u2").reshape(50, -1)[3, 2] == 65535


def test_neighbours_are_fewer_where_there_is_no_room(monkeypatch):
    facts = made_facts(300, 10, 20)
    assert near_shown(facts, facts.runs[0]) == 8
    monkeypatch.setattr(packed, "NEAR_ROOM", 600 * 3 * 5)
    assert near_shown(facts, facts.runs[0]) == 5
    monkeypatch.setattr(packed, "NEAR_ROOM", 10)
    assert near_shown(facts, facts.runs[0]) == 0 and not [b for b in many_blocks(facts) if b.name.startswith("near")]


def test_pictures_have_numbers_doubts_first():
    facts = made_facts(300, 10, 20)
    _, more = first_blocks(facts)
    told = json.loads(more.text)
    doubts = [doubt for run in told["runs"] for doubt in run["noise"]["doubts"]]
    given = [doubt.picture for run in facts.runs for doubt in run.noise.doubts]
    all_pictures = pictures(facts)
    for doubt, picture in zip(doubts, given, strict=True):
        assert picture is all_pictures[doubt["slot"]] if doubt["slot"] is not None else picture is None
    for place, slot in told["slots"][0].items():
        assert all_pictures[slot] is facts.pools[0].picture[int(place)]


def test_long_captions_are_kept_of_samples_with_pictures(monkeypatch):
    pool = made_facts(300, 10, 20).pools[0]
    monkeypatch.setattr(packed, "CAPTION_ROOM", 100)
    assert captions(pool) == {place: pool.caption[place] for place in pool.picture}
    assert captions(replace(pool, caption=None)) == []


@pytest.mark.parametrize("example", [None, (3, 9)])
def test_a_confusion_is_shown_by_queries_that_were_answered_so(example):
    seen = dict.fromkeys([0, 1, 2, 6, 7, 8], Image.new("RGB", (2, 2)))
    pool = Pool("x", "test", np.arange(10), np.repeat([0, 1], 5), ("a", "b"), picture=seen)
    near = np.array([[1], [7], [0], [9], [3], [6], [5], [5], [5], [8]])
    ours, theirs = examples(Confused(0, 1, 2, 0.4, example), pool, np.array(list(seen)), near)
    first = [[], []] if example is None else [[3], [9]]
    assert ours == (first[0] + [1, 0, 2])[:3] and theirs == (first[1] + [7, 6, 8])[:3]
