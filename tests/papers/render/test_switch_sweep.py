"""The drawing of a sweep: axes, lines, dashed lines and whiskers."""

import numpy as np
import pytest

from likewise.core.render.figures import Estimate
from likewise.papers.figures.switch_sweep import SweepPoint, draw_sweep


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
