"""The drawing of a sweep of intervals: points, whiskers, levels without groups, and ticks at the intervals."""

import numpy as np
import pytest

from likewise.core.render.figures import Estimate
from likewise.papers.figures.interval_sweep import IntervalPoint, draw_intervals


def test_ours_and_printed_have_a_line_and_a_level_each():
    points = [IntervalPoint(None, Estimate(80, 1, 2), 82.8)]
    points += [IntervalPoint(t, Estimate(80 + t / 10, 1, 2), 84.0) for t in (10, 20, 40, 80)]
    figure = draw_intervals(points, "R@1")
    (axes,) = figure.axes
    solid = [line for line in axes.lines if line.get_marker() in ("o", "s")]
    assert [list(line.get_xdata()) for line in solid] == [[10, 20, 40, 80]] * 2
    assert solid[0].get_ydata() == pytest.approx([81, 82, 84, 88]) and list(solid[1].get_ydata()) == [84.0] * 4
    assert sorted(line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--") == [80, 82.8]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "20", "40", "80"]
    assert "mean over 2 seeds, whiskers" in figure.texts[1].get_text()


def test_one_seed_without_printed_values_and_without_a_baseline():
    figure = draw_intervals([IntervalPoint(5, Estimate(50, np.nan, 1), None)], "R@1")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ours"]
    assert "whiskers" not in figure.texts[1].get_text()
