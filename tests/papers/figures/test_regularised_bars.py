"""Bars with and without regularisation: order, partners, printed values and gains."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from likewise.core.render.figures import WITH_COLOUR, WITHOUT_COLOUR, Estimate
from likewise.papers.figures.regularised_bars import Bar, draw, draw_bars, places_of

ROWS = {
    "Plain": [(0.5, 0.0), (0.5, 0.0)],
    "Triplet (D)": [(0.60, 0.0), (0.62, 0.0)],
    "R-Triplet": [(0.57, 0.0), (0.58, 0.0)],
    "R-Alone": [(0.4, 0.0), (0.4, 0.0)],
}


def test_the_best_method_is_first_and_its_regularised_partner_follows(made):
    printed = {"R-Triplet": SimpleNamespace(mean=60.1, spread=0.3), "Plain": SimpleNamespace(mean=51.0, spread=None)}
    drawn = draw(made(ROWS, printed=printed))
    columns, lines = drawn.values["regularised_bars"]
    assert columns == ["method", "regularised", "R@1", "std", "seeds", "printed", "printed_std"] and drawn.figure
    assert [(line[0], line[1], *line[5:]) for line in lines] == [
        ("Triplet (D)", "no", "", ""), ("R-Triplet", "yes", 60.1, 0.3), ("Plain", "no", 51.0, None), ("R-Alone", "no", "", ""),
    ]  # fmt: skip
    assert lines[0][2] == pytest.approx(61)
    assert drawn.notes == [
        "R@1 with rho-regularisation minus without, in points: Triplet (D) −3.5. The table has the tests of the differences."
    ]


BARS = [
    Bar("Triplet (D)", "Triplet (D)", Estimate(61.0, 1.4, 2), False, (60.2, 0.35)),
    Bar("R-Triplet", "Triplet (D)", Estimate(63.0, 0.5, 2), True, (62.5, None)),
    Bar("Histogram", "Histogram", Estimate(50.0, np.nan, 1), False),
]


def test_bars_start_at_0_and_their_numbers_are_beside_them():
    figure = draw_bars(BARS, "R@1", "cub200")
    (axes,) = figure.axes
    bars = sorted(axes.patches, key=lambda bar: bar.get_y())
    assert [bar.get_x() for bar in bars] == [0, 0, 0] and [bar.get_width() for bar in bars] == [61, 63, 50]
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [WITHOUT_COLOUR, WITH_COLOUR, WITHOUT_COLOUR]
    assert [text.get_text() for text in axes.texts] == [
        "61.0 ± 1.4  (printed 60.20 ± 0.35)", "63.0 ± 0.5  (printed 62.5)", "50.0",
    ]  # fmt: skip
    assert [text.get_text() for text in axes.get_yticklabels()] == ["Triplet (D)", "R-Triplet", "Histogram"]
    assert axes.get_xlabel() == "R@1 (%)" and axes.get_xlim()[0] == 0
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["without", "with rho-regularisation", "printed in the paper"]
    diamonds = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D" and len(line.get_xdata())]
    assert diamonds == pytest.approx([60.2, 62.5])


def test_without_printed_values_there_is_no_diamond():
    figure = draw_bars([bar._replace(printed=None) for bar in BARS], "R@1", "cub200")
    assert len(figure.legends[0].get_texts()) == 2 and figure.axes[0].texts[0].get_text() == "61.0 ± 1.4"


def test_bars_of_one_method_touch():
    assert places_of(BARS) == [0, 1, 2.5]


def test_numbers_are_inside_of_the_figure():
    figure = draw_bars(BARS, "R@1", "cub200")
    figure.canvas.draw()
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in figure.axes[0].texts)
