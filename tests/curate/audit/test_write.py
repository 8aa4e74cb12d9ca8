"""The tables of an audit: cells that come back as they were, in CSV and Parquet."""

import csv
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from likewise.types import Items

from likewise.curate.audit.write import carried_columns, changed_labels, number, reason, write_csv, write_parquet

NAMES = ("plain", "a,b", 'q"x"', "line\nbreak", "naïve 日本", "", "=1+1")


def test_names_come_back_as_they_were(tmp_path):
    head = ("row", "path", "label", "score", "suggested", "split", "query", "weight")
    lines = [[row, "", name, "0.5", "", "train", row % 2, ""] for row, name in enumerate(NAMES)]
    write_csv(tmp_path / "t.csv", head, lines)
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as file:
        assert [line["label"] for line in csv.DictReader(file)] == list(NAMES)
    write_parquet(tmp_path / "t.parquet", head, list(zip(*lines, strict=True)))
    table = pq.read_table(tmp_path / "t.parquet").to_pydict()
    assert table["label"] == list(NAMES) and table["row"] == list(range(7)) and table["score"] == [0.5] * 7
    assert table["weight"] == [None] * 7 and table["query"] == [0, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123456789, "0.123457"), (1e-9, "1e-09"), (math.nan, ""), (np.float32(0.5), "0.5"), (torch.tensor(2.0), "2")],
)
def test_numbers(value, text):
    assert number(value) == text


def test_reasons():
    assert reason([], "a", "b") == ""
    assert reason(["a", "b", "b", "c"], "a", "b") == "4 nearest: 2 with the suggested label, 1 with the given label"


def test_what_the_data_says_besides():
    y = np.zeros(2, np.int64)
    assert carried_columns(Items("toy", y, ("a",))) == {}
    box = np.array([[1.5, 2, 3, 4], [np.nan] * 4])
    marks = {"query": np.array([True, False]), "gallery": np.array([False, True]), "group": np.array([-1, 7])}
    found = carried_columns(Items("toy", y, ("a",), box=box, weight=np.array([0.25, 1.0]), **marks))
    assert found == {
        "query": [1, 0], "gallery": [0, 1], "group": ["", "7"], "weight": [0.25, 1.0], "left": ["1.5", ""], "top": ["2", ""],
        "right": ["3", ""], "bottom": ["4", ""],
    }  # fmt: skip
    shops = Items("toy", y, ("a",), gallery=np.array([False, True]), gallery_name=np.array(["", "shop"]))
    assert carried_columns(shops) == {"gallery": ["", "shop"]}


def test_changed_labels():
    assert changed_labels("dress|red", "dress|red|striped") == "missing: striped"
    assert changed_labels("dress|red", "red|shirt|striped") == "missing: shirt, striped; superfluous: dress"
