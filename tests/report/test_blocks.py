"""Blocks of a page: no text gets out of its block, and records become what JSON can hold."""

import json
from dataclasses import dataclass

import numpy as np

from likewise.report.blocks import array_block, json_block, to_json


def test_json_cannot_leave_its_element_and_numbers_that_are_none_are_null():
    block = json_block(
        "x", {"a": "</script><!-- \u2028", "b": [float("nan"), float("inf"), 0.1], 3: np.float32(2), "c": "\ud800"}
    )
    assert "<" not in block.text and "\u2028" not in block.text
    assert json.loads(block.text) == {"a": "</script><!--  ", "b": [None, None, 0.1], "3": 2.0, "c": "\\ud800"}
    assert to_json((np.arange(2), np.bool_(True))) == [[0, 1], True]


@dataclass(frozen=True)
class Record:
    share: float
    parts: tuple


def test_records_become_dicts_however_deep_they_stand():
    assert to_json(Record(0.5, (Record(float("nan"), ()),))) == {"share": 0.5, "parts": [{"share": None, "parts": []}]}


def test_arrays_are_bytes_lowest_first():
    assert array_block("a", np.array([1, 256], ">u2")).text == "AQAAAQ=="
