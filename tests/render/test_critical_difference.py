"""Pictures of a contest: what is drawn where, names that do not touch, and what cannot be drawn is said."""

import math

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from likewise.numerics.intervals import Interval
from likewise.numerics.significance import MethodComparison
from likewise.render.benchmark_table import Point
from likewise.render.critical_difference import draw_agreement, draw_ranks, spread
from likewise.types import LikewiseError


def contest(methods, critical=3.5):
    rank = {f"Method with a long name, number {m} ({'x' * (m % 7)})": 1 + 0.9 * m for m in range(methods)}
    return MethodComparison("R@1", 900, 0, 100, (), rank, 0.0001, critical)


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
def test_names_and_numbers_of_ranks_do_not_touch(methods):
    figure = draw_ranks(contest(methods))
    boxes = texts(figure)
    assert touching(boxes) == [] and outside(figure, boxes) == []
    assert "critical difference 3.50" in boxes
    assert {"1.00", f"{1 + 0.9 * (methods - 1):.2f}"} <= boxes.keys()


def test_ranks_stand_where_they_belong_and_bars_join_what_is_not_told_apart():
    made = contest(6, critical=2.0)
    axes = draw_ranks(made).get_axes()[0]
    assert axes.collections[-1].get_offsets().tolist() == [
        [pytest.approx(r), i] for i, r in enumerate(made.rank.values())
    ]
    ruler, *bars = axes.get_lines()
    assert list(ruler.get_xdata()) == pytest.approx([1, 3])
    assert [tuple(bar.get_ydata()) for bar in bars] == [
        (i - 0.3, i + 2.3) for i in range(4)
    ]  # 0.9 apart: three and three
    assert (
        draw_ranks(contest(3, critical=0.1)).texts[1].get_text()
        == "Friedman p < 0.001; all methods differ significantly"
    )


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


def test_heights_are_spread_no_further_than_needed():
    assert spread(np.array([1.0, 5.0, 9.0]), 1.0, 0.0, 10.0).tolist() == [1, 5, 9]
    assert spread(np.array([5.0, 5.0, 5.0]), 1.0, 0.0, 10.0) == pytest.approx([4, 5, 6])
    assert spread(np.array([9.9, 10.0]), 1.0, 0.0, 10.0) == pytest.approx([9, 10])
    assert spread(np.array([0.0, 0.1]), 1.0, 0.0, 10.0) == pytest.approx([0, 1])
    found = spread(np.sort(np.random.default_rng(0).random(20)), 0.05, 0.0, 1.0)
    assert (np.diff(found) >= 0.05 - 1e-9).all() and found[0] >= 0 and found[-1] <= 1 + 1e-9


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(LikewiseError, match="draw_ranks: a contest must have 2 methods or more, got 1"):
        draw_ranks(contest(1))
    with pytest.raises(
        LikewiseError, match="draw_against: at least one method must have a published value and ours, got none"
    ):
        draw_agreement([], "R@1")
