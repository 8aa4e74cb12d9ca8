"""The drawing of spectral decay against a score: points, arrows, names and the correlation."""

import math
from itertools import pairwise

import pytest

from likewise.core.render.figures import Estimate
from likewise.papers.figures.decay_recall import DecayPoint, describe_correlation, draw_decay
from likewise.score.significance import Coefficient, Correlation, correlate

POINTS = [
    DecayPoint("A (D)", Estimate(0.9, 0.01, 2), Estimate(40.0, 1.0, 2)),
    DecayPoint("R-A", Estimate(0.6, 0.01, 2), Estimate(50.0, 1.0, 2), "A (D)"),
    DecayPoint("B", Estimate(0.5, 0.01, 2), Estimate(40.1, 1.0, 2)),
]


def test_points_are_at_their_values_and_named_beside_the_plot():
    figure = draw_decay(POINTS, "R@1", "cub200", correlate([0.9, 0.6, 0.5], [40, 50, 40.1]))
    (axes,) = figure.axes
    without, regularised = (scatter.get_offsets().tolist() for scatter in axes.collections[-2:])
    assert sorted(without) == [pytest.approx([0.5, 40.1]), pytest.approx([0.9, 40.0])]
    assert regularised == [pytest.approx([0.6, 50.0])]
    assert axes.get_ylabel() == "R@1 of the test split (%)" and axes.get_xlabel().startswith("spectral decay ρ")
    names = [text for text in axes.texts if text.get_text()]
    assert [text.get_text() for text in names] == ["A (D)", "B", "R-A"]
    assert len(axes.texts) - len(names) == 1  # the arrow from A to R-A
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in names]
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))
    assert figure.texts[1].get_text() == "Pearson −0.29, Spearman −0.50, 3 methods"


def test_the_correlation_in_words():
    found = Correlation(Coefficient(-0.854, -0.94, -0.7), Coefficient(0.5, 0.1, 0.75), 23)
    assert describe_correlation(found) == "Pearson −0.85 (−0.94 to −0.70), Spearman 0.50 (0.10 to 0.75), 23 methods"
    unknown = Coefficient(math.nan, math.nan, math.nan)
    assert describe_correlation(Correlation(unknown, unknown, 1)).startswith("no correlation: 1 methods")
