"""Spectral decay against the score: points, correlation and the effect of regularisation."""

import math
from itertools import pairwise

import pytest

from likewise.core.render.figures import Estimate
from likewise.papers.figures.decay_recall import DecayPoint, describe_correlation, draw, draw_decay
from likewise.score.significance import Coefficient, Correlation, correlate

ROWS = {
    "A (D)": [(0.40, 0.9), (0.42, 0.9)],
    "R-A": [(0.50, 0.6), (0.52, 0.6)],
    "B (D)": [(0.45, 0.5), (0.45, 0.5)],
    "R-B": [(0.43, 0.4), (0.43, 0.4)],
    "C": [(0.60, 0.3), (0.60, 0.3)],
}


def test_one_point_per_method_with_its_correlation(made):
    drawn = draw(made(ROWS))
    notes = drawn.notes
    columns, lines = drawn.values["decay_recall"]
    rows = [dict(zip(columns, line)) for line in lines]
    assert drawn.figure and [(row["method"], row["regularised"]) for row in rows] == [
        ("A (D)", "no"), ("R-A", "yes"), ("B (D)", "no"), ("R-B", "yes"), ("C", "no"),
    ]  # fmt: skip
    assert rows[1]["rho"] == pytest.approx(0.6) and rows[4]["seeds"] == 2
    # ranks of rho 5 4 3 2 1, of R@1 1 4 3 2 5: squares 16 + 0 + 0 + 0 + 16 = 32, 1 - 6 * 32 / 120 = -0.6
    assert "Spearman −0.60 (" in notes[0] and notes[0].endswith("5 methods.")
    assert notes[1] == (
        "With rho-regularisation rho is lower for 2 of 2 methods, and at the same time R@1 higher for 1 (the paper: for each)."
    )
    assert "too narrow" in notes[2]


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
