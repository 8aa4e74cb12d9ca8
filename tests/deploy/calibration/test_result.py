"""The table of a calibration: thresholds, the promise in words, and refusals."""

import dataclasses
import math

from likewise.deploy.calibration.calibrate import Calibrated
from likewise.runs.calibration import Threshold


def test_the_table(calibrated, open_run):
    table = calibrated.table()
    pair = calibrated.calibration.pair
    assert table.columns[1:3] == ["cosine from", "false accepts, at most"]
    assert table.lines[0][1:3] == [f"{pair.value:.4f}", "40 %"]
    assert table.notes[0].startswith("promised for 12 new classes, in 95 % of choices of classes")
    assert str(open_run.path / "calibration.json") in table.notes[-2]
    assert "false accepts" in calibrated._repr_html_()


def test_a_refusal_and_precision(calibrated):
    refused = Threshold(None, 0.01, 0.06, math.nan, math.nan, 12, "12 validation classes can promise 0.06", "precision")
    made = dataclasses.replace(calibrated.calibration, pair=refused)
    table = Calibrated(made, calibrated.run, calibrated.figure, ["a remark"]).table()
    assert table.lines[0][1:] == ["none", "1 % refused", "", ""] and table.columns[2] == "wrong among accepted, at most"
    assert table.notes[0] == "two images show the same class: no threshold; 12 validation classes can promise 0.06"
    assert (
        any(note.startswith("precision of two images holds if") for note in table.notes) and "a remark" in table.notes
    )
