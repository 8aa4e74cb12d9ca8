"""Pictures of a contest: what is drawn where, names that do not touch, and what cannot be drawn is said."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from likewise.types import LikewiseError
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from likewise.papers.benchmark_table import BenchmarkTable, Entry, Point
from likewise.papers.figures.method_means import (
    draw_agreement,
    draw_columns,
    draw_means,
    numeric_series,
    significant_pairs,
)
from likewise.score.intervals import Interval
from likewise.score.significance import MethodComparison, PairTest


def contest(methods, near=2, seeds=3, columns=("",)):
    """Methods 0.9 points apart, of which those further apart than `near` places differ significantly."""
    names = [f"Method with a long name, number {m} ({'x' * (m % 7)})" for m in range(methods)]
    pairs = tuple(
        PairTest(
            "", names[a], names[b], 0.01, 0.0, 0.02, 0.01, seeds, "worse" if b - a > near else "no difference shown"
        )
        for a, b in itertools.combinations(range(methods), 2)
    )
    mean = {name: 0.9 - 0.009 * m for m, name in enumerate(names)}
    return MethodComparison(
        "R@1", 900, 0, 100, tuple(replace(p, column=c) for c in columns for p in pairs), mean, pairs
    )


def texts(figure):
    """Every text that is drawn, and the box it fills, without the line to its point."""
    FigureCanvasAgg(figure).draw()
    drawn = figure.get_axes()[0]
    every = [*figure.texts, *drawn.texts, *drawn.get_yticklabels(), drawn.xaxis.label]
    return {text.get_text(): Text.get_window_extent(text) for text in every if text.get_text()}


def touching(boxes):
    names = list(boxes)
    return [(a, b) for i, a in enumerate(names) for b in names[:i] if boxes[a].overlaps(boxes[b])]


def outside(figure, boxes):
    edge = figure.bbox
    return [n for n, b in boxes.items() if b.x0 < 0 or b.y0 < 0 or b.x1 > edge.x1 or b.y1 > edge.y1]


@pytest.mark.parametrize("methods", [2, 24])
def test_names_and_numbers_of_means_do_not_touch(methods):
    figure = draw_means(contest(methods, columns=("none", "half")))
    boxes = texts(figure)
    assert touching(boxes) == [] and outside(figure, boxes) == []
    assert {"90.0", f"{90 - 0.9 * (methods - 1):.1f}", "mean R@1 in % over seeds and 2 columns"} <= boxes.keys()


def test_means_and_pairs_are_where_they_belong():
    made = contest(4, near=1)
    figure = draw_means(made)
    means, pairs = figure.get_axes()
    dots = means.collections[-1]
    assert dots.get_offsets().tolist() == [[pytest.approx(100 * v), i] for i, v in enumerate(made.mean.values())]
    assert [tuple(c) == tuple(dots.get_facecolors()[0]) for c in dots.get_facecolors()] == [True, True, False, False]
    undecided, better, worse = (sorted(map(tuple, c.get_offsets().tolist())) for c in pairs.collections)
    assert better == [(2, 0), (3, 0), (3, 1)] and worse == [(0, 2), (0, 3), (1, 3)]  # column, row
    assert undecided == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    assert figure.texts[0].get_text() == "R@1: 3 of 6 pairs differ significantly"
    assert figure.texts[1].get_text().startswith("100 test classes, 3 seeds; square: blue if the row is better")
    assert pairs.get_ylim() == means.get_ylim()


def test_the_table_of_pairs_follows_the_outcome_of_b():
    first = contest(2, near=0)
    assert significant_pairs(first).tolist() == [[0, 1], [-1, 0]]
    pair = replace(first.overall[0], a=first.overall[0].b, b=first.overall[0].a, outcome="better")
    assert significant_pairs(replace(first, overall=(pair,))).tolist() == [[0, 1], [-1, 0]]


def points(count):
    rng = np.random.default_rng(0)
    values = 60 + rng.normal(0, 2, (count, 2))
    return [
        Point(f"Method {m}, {'y' * (m % 9)}", p, Interval(o, o - 0.5, o + 0.5, 3))
        for m, (p, o) in enumerate(values.tolist())
    ]


@pytest.mark.parametrize("count", [1, 4, 24])
def test_names_beside_the_printed_values_do_not_touch(count):
    figure = draw_agreement(points(count), "R@1: ours against the paper's")
    boxes = {name: box for name, box in texts(figure).items() if name.startswith("Method")}
    assert len(boxes) == count and touching(boxes) == [] and outside(figure, boxes) == []


def test_points_intervals_and_line_are_where_they_should_be():
    made = [*points(4), Point("one run", 61.0, Interval(70.0, math.nan, math.nan, 1))]
    figure = draw_agreement(made, "R@1")
    axes = figure.get_axes()[0]
    dots = axes.collections[-1]
    assert np.allclose(sorted(dots.get_offsets().tolist()), sorted([p.printed, p.ours.mean] for p in made))
    assert (dots.get_facecolors()[-1][:3] == 1).all() and (dots.get_facecolors()[:-1, :3] != 1).any(1).all()
    whiskers = axes.collections[0].get_segments()
    assert len(whiskers) == 4 and all(high[1] - low[1] == pytest.approx(1) for low, high in whiskers)
    diagonal = axes.get_lines()[0]
    assert axes.get_xlim() == axes.get_ylim() == tuple(diagonal.get_xdata()) == tuple(diagonal.get_ydata())
    assert "Kendall's tau" in figure.texts[1].get_text() and "open: one run" in figure.texts[1].get_text()


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(LikewiseError, match="but fewer than two methods are in all"):
        draw_means(contest(1))
    with pytest.raises(LikewiseError, match="two seeds .* are missing between Method"):
        draw_means(contest(2, seeds=1))
    with pytest.raises(LikewiseError, match="a published value and ours, got none"):
        draw_agreement([], "R@1")


def table(*entries):
    return BenchmarkTable("toy", "Toy", ("method",), entries)


def test_methods_are_lines_over_the_number_in_the_names_of_columns():
    names = ("none", "uniform 0.2", "uniform 0.5", "semantic 0.5")  # "semantic" has two numbers only
    rows = {"bad": (0.5, 0.3, 0.1, 0.2), "good": (0.6, 0.5, 0.4, 0.3)}
    entries = [Entry((m,), (c, "R@1"), (v, v), 2) for m, values in rows.items() for c, v in zip(names, values)]
    figure = draw_columns(table(*entries, Entry(("good",), ("all", "NMI"), (0.1,), 1)))
    (axes,) = figure.axes
    assert axes.get_title("left") == "uniform"
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}
    assert list(lines) == ["good", "bad"]  # the best first
    assert lines["good"] == ([0, 0.2, 0.5], pytest.approx([60, 50, 40])) and lines["bad"][1] == pytest.approx(
        [50, 30, 10]
    )


def test_methods_are_bars_from_zero_with_interval_or_range_and_the_published_number():
    paper = SimpleNamespace(mean=55.0, spread=None, about=())
    entries = Entry(("two",), ("R@1",), (0.2, 0.3), 2, paper), Entry(("three",), ("R@1",), (0.4, 0.5, 0.6), 3)
    (axes,) = draw_columns(table(*entries, Entry(("none yet",), ("R@1",), (), 3))).axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, pytest.approx(50)), (0, pytest.approx(25))]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["three", "two"]
    interval, spread, printed = axes.get_lines()
    reach = 4.302653 * 10 / math.sqrt(3)  # t of two degrees of freedom
    assert list(interval.get_xdata()) == pytest.approx([50 - reach, 50 + reach], abs=1e-4)
    assert list(spread.get_xdata()) == pytest.approx([20, 30]) and list(printed.get_xdata()) == [55]


def test_fewer_than_two_methods_have_no_figure_of_columns():
    assert draw_columns(table()) is None
    one, nan = Entry(("one",), ("R@1",), (0.2,), 1), Entry(("nan",), ("R@1",), (math.nan,), 1)
    assert draw_columns(table(one, nan)) is None


def test_series_have_three_numbers_or_more():
    assert numeric_series([("a 1",), ("a 2",), ("b",)]) == {}
    assert numeric_series([("a", "1"), ("a", "2"), ("a", "3")]) == {"a,": {("a", "1"): 1, ("a", "2"): 2, ("a", "3"): 3}}
