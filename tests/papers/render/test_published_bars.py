"""Bars of published numbers: from 0, in groups, with the printed spread and our value."""

import numpy as np
from matplotlib.colors import to_rgb

from likewise.papers.figures.published_bars import BAR_COLOURS, BarGroup, PublishedBar, draw_published_bars
from likewise.score.intervals import Interval

GROUPS = [
    BarGroup("study", [PublishedBar("a", 60.0, 1.5, True, Interval(55.0, 54.0, 56.0, 3)), PublishedBar("b", 50.0, None, False)]),
    BarGroup("other", [PublishedBar("c_$", 40.0, None, None, Interval(41.0, np.nan, np.nan, 1))]),
]  # fmt: skip


def test_bars_start_at_zero_and_have_their_numbers():
    figure = draw_published_bars(GROUPS, "R@1")
    first, second = figure.axes
    assert [(bar.get_x(), bar.get_width()) for bar in first.patches] == [(0, 60), (0, 50)]
    colours = [bar.get_facecolor()[:3] for axes in figure.axes for bar in axes.patches]
    assert np.allclose(colours, [to_rgb(BAR_COLOURS[kind]) for kind in (True, False, None)])
    assert [text.get_text() for text in first.texts] == ["60.0 ± 1.5  (ours 55.0)", "50.0"]
    assert [text.get_text() for text in second.texts] == ["40.0  (ours 41.0)"]
    spread, interval, mean = first.get_lines()
    assert list(spread.get_xdata()) == [58.5, 61.5] and list(interval.get_xdata()) == [54, 56]
    assert list(mean.get_xdata()) == [55]
    assert first.get_xlim() == second.get_xlim() and first.get_xlim()[0] == 0
    assert [t.get_text() for t in figure.texts] == ["study", "other"] and second.get_xlabel() == "R@1 (%)"


def test_the_legend_names_our_mean_only_if_there_is_one():
    for groups, has_ours in ((GROUPS, True), ([BarGroup("x", GROUPS[0].bars[1:])], False)):
        names = [text.get_text() for text in draw_published_bars(groups, "R@1").legends[0].get_texts()]
        assert ("our mean" in names) == has_ours
