"""The sweep of the interval between clusterings: its points in order, the printed values, and training without groups."""

import numpy as np
import pytest
from likewise.config import Train

from likewise.core.render.figures import Estimate
from likewise.papers.figures.interval_sweep import IntervalPoint, draw, draw_intervals, interval_of
from likewise.papers.published import numbers

PLAIN = "ProxyNCA()"


def loss(every):
    return {"loss": f"Hierarchical(loss=ProxyNCA(), every={every!r})"}


@pytest.mark.parametrize(
    ("spec", "steps"),
    [(loss(20)["loss"], 20), (loss("1e")["loss"], None), (PLAIN, None), ("Hierarchical(loss=ProxyNCA())", 20)],
)
def test_intervals(spec, steps):
    assert interval_of(Train("glyphs", loss=spec)) == steps


def test_points_are_those_of_the_table_beside_the_printed_ones(made):
    rows = {"T 40": [(0.62, 0), (0.64, 0)], "plain": [(0.60, 0), (0.60, 0)], "T 10": [(0.50, 0), (0.54, 0)]}
    printed = {"T 10": number_of("HPL-NCA (|P1|=10; T=10)"), "plain": number_of("Proxy-NCA")}
    given = made(rows, printed=printed, **{"T 40": loss(40), "T 10": loss(10), "plain": {"loss": PLAIN}})
    drawn = draw(given)
    columns, lines = drawn.values["interval_sweep"]
    assert columns == ["every", "R@1", "std", "seeds", "printed"] and drawn.figure
    assert [(every, round(mean, 9), printed) for every, mean, _, _, printed in lines] == [
        ("", 60, 82.8), (10, 52, 84.7), (40, 63, ""),
    ]  # fmt: skip
    assert drawn.notes == ["R@1 with groups: 52.0 (every 10 steps) to 63.0 (every 40); without groups 60.0 ± 0.0."]


def number_of(method):
    (number,) = numbers(paper="hierarchical", table="figure 2", method=method)
    return number


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
