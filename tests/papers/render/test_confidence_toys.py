"""Toys of confidence: histograms in per cent of their own labels, and every confidence over the losses."""

import numpy as np
import pytest

from likewise.papers.figures.confidence_toys import Toy, ToyConfidence, draw_toys


def toy(name, confidences):
    loss, wrong = np.array([0.0, 0.1, 0.2, 4.0]), np.array([False, False, False, True])
    curve = np.array([0.0, 4.0])
    ways = [ToyConfidence(f"way {n}", 1.0 + n, c, curve, c[[0, 3]]) for n, c in enumerate(confidences)]
    return Toy(name, loss, wrong, ways)


def test_a_row_per_toy_with_its_losses_and_a_histogram_per_confidence():
    one, other = np.array([2.0, 1.0, 1.0, 0.5]), np.array([1.0, 1.0, 1.0, 0.25])
    figure = draw_toys([toy("a", [one, other]), toy("b", [one, other])])
    titles = [axes.get_title("left") for axes in figure.axes]
    assert [t for t in titles if t] == ["a", "way 0", "way 1", "b", "way 0", "way 1"]
    losses, over = figure.axes[0], next(axes for axes in figure.axes if axes.get_ylabel() == "confidence")
    assert [list(line.get_ydata()) for line in over.get_lines()] == [[2.0, 0.5], [1.0, 0.25]]
    assert [line.get_xdata()[0] for line in losses.get_lines() if len(line.get_xdata()) == 2] == [
        1.0,
        2.0,
    ]  # thresholds
    histogram = next(axes for axes in figure.axes if axes.get_title("left") == "way 1")
    heights = [bar.get_height() for bar in histogram.patches]
    right, wrong = heights[: len(heights) // 2], heights[len(heights) // 2 :]
    assert sum(right) == pytest.approx(100) == sum(wrong)
    assert histogram.get_xlim()[1] >= 2  # both histograms of a row have the same range
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        "right labels", "wrong labels", "confidence, way 0", "confidence, way 1", "threshold τ",
    ]  # fmt: skip
