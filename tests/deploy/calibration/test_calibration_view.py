"""Figures of a calibration: what is drawn, and where the chosen threshold is."""

import numpy as np
import pytest
from scipy.stats import norm

from likewise.deploy.calibration.calibration_view import draw_calibration, draw_det, draw_reliability, draw_roc

CURVES = {
    f"{name}_{what}": values
    for name in ("pair", "unknown")
    for what, values in {
        "threshold": [0.0, 0.5, 1.0], "errors": [1.0, 0.1, 0.0], "bound": [1.0, 0.2, 0.1], "true_accepts": [1.0, 0.8, 0.0]
    }.items()
} | {
    "reliability_predicted": [0.2, 0.9], "reliability_observed": [0.3, 0.8], "reliability_share": [0.5, 0.5],
    "calibration_error": [0.1],
}  # fmt: skip


def test_true_accepts_and_the_chosen_threshold():
    axes = draw_roc(CURVES, {"pair": 0.5, "unknown": None}).axes[0]
    curve, bound, dot = axes.lines[:3]
    assert curve.get_xdata().tolist() == [1, 0.1] and curve.get_ydata().tolist() == [100, 80]
    assert bound.get_xdata().tolist() == [1, 0.2] and (dot.get_xdata()[0], dot.get_ydata()[0]) == (0.1, 80)
    assert axes.get_xscale() == "log"


def test_false_rejects_on_normal_quantiles():
    axes = draw_det(CURVES, {"pair": 0.5}).axes[0]
    line = axes.lines[0]
    assert line.get_xdata()[0] == pytest.approx(norm.ppf(0.1)) and line.get_ydata()[0] == pytest.approx(norm.ppf(0.2))
    assert len(line.get_xdata()) == 1 and axes.lines[1].get_xdata()[0] == pytest.approx(norm.ppf(0.1))


def test_reliability():
    axes = draw_reliability(CURVES).axes[0]
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[20, 30], [90, 80]])
    assert axes.get_title(loc="left") == "probability of the neighbour: off by 10.0 %"


def test_three_panels():
    assert len(draw_calibration(CURVES, {"pair": 0.5, "unknown": 1.0}).axes) == 3
