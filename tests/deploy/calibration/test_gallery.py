"""calibrate_gallery: more rows need a higher threshold, and a class is never its own impostor."""

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.deploy.calibration.fit_calibration import calibrate_gallery
from likewise.runs.calibration import read_validation


def test_a_larger_gallery_has_a_higher_threshold(calibrated, open_run):
    rng = np.random.default_rng(0)
    small, large = (rng.normal(size=(count, 8)).astype(np.float32) for count in (12, 1200))
    few = calibrate_gallery(open_run.path, small, ["a"] * 6 + ["b"] * 6)
    many = calibrate_gallery(open_run.path, large, [f"class {i % 40} new" for i in range(1200)])
    assert many.unknown.value > few.unknown.value and many.pair == few.pair == calibrated.calibration.pair
    assert many.gallery == {"rows": 1200, "classes": 40} and many.prevalence < few.prevalence
    assert many.unknown.rate == 0.4 and many.curves["pair_errors"] == calibrated.calibration.curves["pair_errors"]


def test_validation_classes_in_the_gallery_are_left_out(calibrated, open_run):
    held = read_validation(open_run.path)
    names = [held.class_name[c] for c in held.y]
    found = calibrate_gallery(open_run.path, held.z, names)  # the gallery of `calibrate` itself
    own = calibrated.calibration
    # the same neighbours, so the same shares of errors, up to the steps between thresholds
    assert np.interp(0.8, found.curves["unknown_threshold"], found.curves["unknown_errors"]) == pytest.approx(
        np.interp(0.8, own.curves["unknown_threshold"], own.curves["unknown_errors"]), abs=0.02
    )
    assert found.unknown.observed < 0.4 and found.unknown.value < 1


def test_what_it_needs(open_run, tmp_path):
    with pytest.raises(LikewiseError, match="is not calibrated; run `likewise calibrate"):
        calibrate_gallery(open_run.path, np.eye(3, 8), ["a"] * 3)


def test_a_gallery_of_another_network(calibrated, open_run):
    for z, names in ((np.eye(3, 5), ["a"] * 3), (np.eye(3, 8), ["a"]), (np.zeros((0, 8)), [])):
        with pytest.raises(LikewiseError, match="the gallery must have one class name for each row of 8 numbers"):
            calibrate_gallery(open_run.path, z, names)
