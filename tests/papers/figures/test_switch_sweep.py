"""The sweep of p_switch: its points in order, and its best probability beside training without regularisation."""

import numpy as np
import pytest

from likewise.core.render.figures import Estimate
from likewise.papers.figures.switch_sweep import SweepPoint, draw, draw_sweep


def test_points_are_those_of_the_table_and_the_note_names_the_best(made):
    rows = {"0.4": [(0.62, 0.2), (0.64, 0.3)], "0": [(0.60, 0.5), (0.60, 0.7)], "0.8": [(0.50, 0.1), (0.54, 0.1)]}
    drawn = draw(made(rows, axis="p_switch"))
    columns, lines = drawn.values["switch_sweep"]
    assert columns == ["line", "p_switch", "R@1", "std", "rho", "rho_std", "seeds"]
    assert [(at, round(mean, 9), round(rho, 9)) for _, at, mean, _, rho, _, _ in lines] == [
        (0, 60, 0.6), (0.4, 63, 0.25), (0.8, 52, 0.1),
    ]  # fmt: skip
    assert drawn.figure.texts[0].get_text() == "R@1 and spectral decay against p_switch on glyphs"
    assert drawn.notes == [
        "R@1 without regularisation 60.0 ± 0.0, best 63.0 ± 1.4 at p_switch 0.4, rho 0.600 ± 0.141 and 0.250 ± 0.071 (mean ± "
        "standard deviation over seeds). 1 of 2 probabilities have a higher mean than without; the best of several is biased "
        "upwards."
    ]


def point(line, probability, score, rho, std=1.0):
    return SweepPoint(line, probability, Estimate(score, std, 2), Estimate(rho, 0.01, 2))


def test_score_and_rho_have_a_panel_each_and_0_is_dashed():
    points = [point(name, p, 60 + p, 0.5 - p) for name in ("A", "B") for p in (0.0, 0.1, 0.4)]
    figure = draw_sweep(points, "R@1", "cub200")
    score, rho = figure.axes
    assert score.get_ylabel() == "R@1 (%)" and rho.get_ylabel() == "spectral decay ρ, training samples"
    assert score.get_xlabel() == rho.get_xlabel() == "probability of a switch, p_switch"
    solid = [line for line in score.lines if line.get_linestyle() == "-" and line.get_marker() == "o"]
    dashed = [line for line in score.lines if line.get_linestyle() == "--"]
    assert len(solid) == len(dashed) == 2
    assert solid[0].get_xdata() == pytest.approx([0.1, 0.4]) and solid[0].get_ydata() == pytest.approx([60.1, 60.4])
    assert list(dashed[0].get_ydata()) == [60, 60]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A", "A, without", "B", "B, without"]
    assert "mean over 2 seeds" in figure.texts[1].get_text()


def test_a_single_seed_has_no_whisker_and_a_sweep_may_lack_its_baseline():
    figure = draw_sweep([point("", 0.2, 60, 0.5, np.nan)], "R@1", "cub200")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["with regularisation"]
    assert not figure.axes[0].patches
