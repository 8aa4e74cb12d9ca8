"""The study of mixup: rows with and without it under one name, and the direction of both effects."""

import numpy as np
import pytest

from likewise.core.render.figures import Estimate
from likewise.papers.figures.mixup import MixupRecord, draw, draw_mixup

ROWS = {
    "A": [(0.60, 0.3), (0.62, 0.3)],
    "A + mixup": [(0.55, 0.4), (0.57, 0.4)],
    "B": [(0.50, 0.5), (0.50, 0.5)],
    "B + mixup": [(0.52, 0.6), (0.52, 0.6)],
}


def test_every_method_is_beside_itself_with_mixup(made):
    given = made(ROWS, **{name: {"mixup": 2.0} for name in ROWS if "mixup" in name})
    drawn = draw(given)
    notes = drawn.notes
    columns, lines = drawn.values["mixup"]
    rows = [dict(zip(columns, line)) for line in lines]
    scores = [row for row in rows if row["value"] == "R@1"]
    assert drawn.figure and [(row["method"], row["mixup"]) for row in scores] == [
        ("A", "no"), ("A", "yes"), ("B", "no"), ("B", "yes"),
    ]  # fmt: skip
    assert [row["mean"] for row in scores] == pytest.approx([61, 56, 50, 52])
    assert "A: R@1 61.0 ± 1.4 and 56.0 ± 1.4, rho 0.300 ± 0.000 and 0.400 ± 0.000; B: " in notes[0]
    assert "R@1 is lower for 1 of 2 methods (the paper: for all), and rho is higher" in notes[1]
    assert "the spectrum decays more, for 2." in notes[1]
    assert len(rows) == 4 * (2 + 3 + 3)
    assert {row["value"] for row in rows} == {"R@1", "rho", "singular value", "class singular value"}


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
