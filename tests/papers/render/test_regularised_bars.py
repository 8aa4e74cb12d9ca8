"""The drawing of bars: lengths, colours, numbers and printed values."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from likewise.core.render.figures import WITH_COLOUR, WITHOUT_COLOUR, Estimate
from likewise.papers.figures.regularised_bars import Bar, draw_bars, places_of

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
