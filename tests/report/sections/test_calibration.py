"""The section about thresholds: its numbers by hand, and a run without a calibration has none."""

import pytest
from likewise.config import Report
from made_calibration import make_calibration, threshold

from likewise.report.section import ReportTarget, Study
from likewise.report.sections.calibration import of_run
from likewise.runs.calibration import write_calibration
from likewise.runs.folder import Run

CURVES = {
    "unknown_threshold": [0.2, 0.5, 0.8], "unknown_errors": [0.4, 0.01, 0.0], "unknown_bound": [0.6, 0.05, 0.02],
    "unknown_true_accepts": [0.99, 0.9, 0.5], "reliability_predicted": [0.1, 0.9], "reliability_observed": [0.2, 0.85],
    "reliability_share": [0.5, 0.5], "calibration_error": [0.075],
}  # fmt: skip


def study(folder):
    return Study(ReportTarget("me", run=Run(folder)), Report(), [], "", [])


def test_numbers_by_hand(tmp_path):
    assert of_run(study(tmp_path)) is None
    write_calibration(tmp_path, make_calibration(0.5, curves=CURVES, gallery={"rows": 1200, "classes": 40}))
    found = of_run(study(tmp_path))
    pair, unknown = found.decisions
    assert found.gallery == "1,200 rows of 40 classes" and found.error == 0.075
    assert (pair.value, pair.curve) == (0.6, {}) and pair.name == "same class or not"
    assert (unknown.value, unknown.rate, unknown.observed) == (0.5, 0.01, 0.004)
    assert unknown.missed == pytest.approx(0.1) and unknown.curve["missed"] == pytest.approx([0.01, 0.1, 0.5])
    assert unknown.curve["errors"] == [0.4, 0.01, 0.0] and unknown.curve["bound"] == [0.6, 0.05, 0.02]
    assert "at most 1 % of images of a class that is not in the gallery" in unknown.promise
    assert found.reliability == {"predicted": [0.1, 0.9], "observed": [0.2, 0.85], "share": [0.5, 0.5]}


def test_a_refused_threshold_has_its_reason(tmp_path):
    write_calibration(tmp_path, make_calibration(unknown=threshold(None)))
    refused = of_run(study(tmp_path)).decisions[1]
    assert refused.value is refused.observed is refused.missed is None
    assert refused.promise == "No threshold: 30 classes promise 0.2 at best."


def test_embeddings_without_a_run():
    assert of_run(Study(ReportTarget("z"), Report(), [], "", [])) is None
