"""The data of a page: read back, it says what the facts say."""

import json
from dataclasses import replace

import numpy as np
from report.made_facts import made_facts

from likewise.report import payload as packed
from likewise.report.blocks import index_dtype
from likewise.report.payload import captions, first_blocks, large_blocks, page_images


def test_rows_that_are_places_take_no_room_and_labels_little():
    facts = made_facts(300, 10, 20)
    found = {block.name for block in large_blocks(replace(facts, pools=(replace(facts.pools[0], row=np.arange(300)),)))}
    assert "label-0" in found and "row-0" not in found
    assert [index_dtype(many) for many in (65535, 65536)] == [np.uint16, np.uint32]


def test_two_models_are_compared_by_a_metric_of_their_own():
    _, more = first_blocks(made_facts(100, 5, 5))
    (told,) = json.loads(more.text)["compared"]
    assert (told["a"], told["b"], told["metric"]) == (0, 1, "R@1") and len(told["queries"]) == 5


def test_pictures_have_numbers_doubts_first():
    facts = made_facts(300, 10, 20)
    _, more = first_blocks(facts)
    told = json.loads(more.text)
    flagged = [doubt for run in told["runs"] for doubt in run["noise"]["flagged"]]
    given = [doubt.image for run in facts.runs for doubt in run.found["noise"].flagged]
    all_pictures = page_images(facts)
    for doubt, picture in zip(flagged, given, strict=True):
        assert picture is all_pictures[doubt["slot"]] if doubt["slot"] is not None else picture is None
    for place, slot in told["slots"][0].items():
        assert all_pictures[slot] is facts.pools[0].images[int(place)]


def test_long_captions_are_kept_of_samples_with_pictures(monkeypatch):
    pool = made_facts(300, 10, 20).pools[0]
    monkeypatch.setattr(packed, "MAX_CAPTION_LETTERS", 100)
    assert captions(pool) == {place: pool.caption[place] for place in pool.images}
    assert captions(replace(pool, caption=None)) == []
