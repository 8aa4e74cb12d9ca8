"""Pools: runs share one only where they ask the same queries of the same samples."""

import dataclasses

import numpy as np
from likewise.types import Items

from likewise.report.pools import key_of, make_pool, note_different_queries
from likewise.report.records import RunView
from likewise.report.target import ReportTarget

ITEMS = Items("toy", np.arange(6) // 2, ("a", "b", "c"), ("x/0.png", "x\\1.png", "2.png", "3.png", "4.png", "5.png"))
ONE = ReportTarget("me", items=ITEMS, row=np.arange(6))


def test_the_same_samples_with_other_queries_are_another_pool():
    asks = np.arange(6) < 2
    other = dataclasses.replace(ONE, items=dataclasses.replace(ITEMS, query=asks, gallery=~asks))
    keys = [key_of(ONE), key_of(other)]
    assert key_of(ONE) == keys[0] != keys[1] and keys[0][0] == keys[1][0]
    viewed = [RunView(name, number, "", {}, {}, "") for number, name in enumerate("ab")]
    (note,) = note_different_queries(keys, viewed)
    assert (
        note.startswith("a, b: the same samples with different queries")
        and list(note_different_queries(keys[:1], viewed[:1])) == []
    )


def test_captions_are_file_names():
    pool = make_pool(ONE)
    assert pool.name == "toy" and pool.caption == ("0.png", "1.png", "2.png", "3.png", "4.png", "5.png")
    assert make_pool(dataclasses.replace(ONE, items=dataclasses.replace(ITEMS, path=None))).caption is None
