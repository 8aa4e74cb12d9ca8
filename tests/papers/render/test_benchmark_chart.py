"""The chart above a benchmark table: values by hand, lines over a number, bars otherwise, and the ranges of two seeds."""

import math
from types import SimpleNamespace

import pytest

from likewise.papers.benchmark_formats import chart_of, colours_of, numeric_series, round_numbers
from likewise.papers.benchmark_table import BenchmarkTable, Entry


def table(*entries):
    return BenchmarkTable("toy", "Toy", ("method",), entries)


def test_lines_over_the_share_of_noise():
    names = ("none", "uniform 0.2", "uniform 0.5", "semantic 0.5")
    rows = {"good": (0.6, 0.5, 0.4, 0.3), "bad": (0.5, 0.3, 0.1, 0.2)}
    entries = [Entry((m,), (c, "R@1"), (v, v), 2) for m, values in rows.items() for c, v in zip(names, values)]
    chart = chart_of(table(*entries, Entry(("good",), ("all", "NMI"), (0.1,), 1)))
    assert chart.metric == "R@1" and chart.bars == []
    (lines,) = chart.lines  # "semantic" has two numbers only
    assert lines.title == "uniform" and [text for _, text in lines.x_ticks] == ["0", "0.2", "0.5"]
    good, bad = lines.lines
    assert (good.name, good.colour, good.text) == ("good", 0, "60.0 to 40.0") and bad.text == "50.0 to 10.0"
    (x0, y0), (x1, y1), (x2, y2) = good.points
    assert (x1 - x0) / (x2 - x0) == pytest.approx(0.4, abs=1e-3) and y0 < y1 < y2  # pixels grow downwards
    assert bad.points[0][1] == y1  # 50 % in both


def test_bars_begin_at_zero_and_the_best_is_first():
    paper = SimpleNamespace(mean=55.0, spread=None, about=())
    chart = chart_of(table(
        Entry(("two seeds",), ("R@1",), (0.2, 0.3), 2, paper), Entry(("three",), ("R@1",), (0.4, 0.5, 0.6), 3),
        Entry(("none yet",), ("R@1",), (), 3),
    ))  # fmt: skip
    (bars,) = chart.bars
    first, second = bars.marks
    assert (first.name, first.mean, first.text) == ("three", pytest.approx(50), "50.0") and bars.low == 0
    assert first.high - first.mean == pytest.approx(
        4.302653 * 10 / math.sqrt(3), abs=1e-4
    )  # t of two degrees of freedom
    assert (second.low, second.high) == (pytest.approx(20), pytest.approx(30)) and second.printed == 55
    assert bars.at(bars.high) == 100 and bars.at(0) == 0
    assert "with two seeds, their range" in chart.note and "published" in chart.note


def test_too_little_for_a_chart():
    assert chart_of(table()) is None
    assert chart_of(table(Entry(("one",), ("R@1",), (0.2,), 1), Entry(("nan",), ("R@1",), (math.nan,), 1))) is None


def test_colours_follow_the_mean_and_the_rest_is_grey():
    entries = [Entry((f"m{i}",), ("R@1",), (i / 10,), 1) for i in range(8)]
    colours = colours_of(entries)
    assert [colours[f"m{i}"] for i in range(8)] == [-1, -1, 5, 4, 3, 2, 1, 0]


def test_series_and_ticks():
    assert numeric_series([("a 1",), ("a 2",), ("b",)]) == {}
    assert numeric_series([("a", "1"), ("a", "2"), ("a", "3")]) == {"a,": {("a", "1"): 1, ("a", "2"): 2, ("a", "3"): 3}}
    assert round_numbers(8, 31) == [10, 15, 20, 25, 30] and round_numbers(0.0, 0.2) == [0.0, 0.05, 0.1, 0.15, 0.2]
