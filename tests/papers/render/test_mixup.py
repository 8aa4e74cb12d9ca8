"""The drawing of the mixup study: four panels per method, bars with numbers, and nothing that overlaps."""

import numpy as np

from likewise.core.render.figures import Estimate
from likewise.papers.figures.mixup import MixupRecord, draw_mixup

WHOLE, CLASSES = np.array([0.6, 0.3, 0.1]), np.array([0.8, 0.2])


def test_a_column_per_method_with_bars_and_spectra():
    records = [
        MixupRecord(method, mixed, Estimate(60.0 - mixed, 0.5, 2), Estimate(0.3 + 0.1 * mixed, 0.01, 2), WHOLE, CLASSES)
        for method in ("A", "B")
        for mixed in (False, True)
    ]
    figure = draw_mixup(records, "R@1", "cub200")
    score, rho, whole, classes, *second = figure.axes
    assert len(second) == 4 and score.get_title(loc="left") == "A" and second[0].get_title(loc="left") == "B"
    assert [bar.get_width() for bar in score.patches] == [60, 59]
    assert [text.get_text() for text in rho.texts] == ["0.300 ± 0.010", "0.400 ± 0.010"]
    assert [axes.get_xlabel() for axes in (score, rho, whole, classes)] == [
        "R@1 (%)",
        "spectral decay ρ",
        "rank",
        "rank",
    ]
    assert [len(axes.lines) for axes in (whole, classes)] == [2, 2]
    assert list(whole.lines[1].get_ydata()) == [0.6, 0.3, 0.1]
    assert [text.get_text() for text in score.get_yticklabels()] == ["without", "with mixup"]
    assert [text.get_text() for text in second[0].get_yticklabels()] == ["", ""]
    figure.canvas.draw()
    right = max(text.get_window_extent().x1 for text in score.texts)
    assert right <= min(label.get_window_extent().x0 for label in second[2].get_yticklabels())
