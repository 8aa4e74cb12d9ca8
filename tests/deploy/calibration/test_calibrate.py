"""calibrate: which rows it may use, what it writes and shows, and what it refuses."""

import dataclasses
import math

import numpy as np
import pytest
from likewise.config import Calibrate, Train
from likewise.types import Items, LikewiseError
from scipy.stats import norm

from likewise.deploy.calibration.calibrate import (
    Calibrated,
    calibrate,
    check_classes,
    draw_calibration,
)
from likewise.learn.training.fit import train
from likewise.runs.calibration import Threshold, read_calibration, read_validation


def ask(run, **settings):
    return calibrate(Calibrate(str(run.path), device="cpu", quiet=True, **settings))


def test_it_uses_validation_classes_and_writes_into_the_run(calibrated, open_run):
    held = read_validation(open_run.path)
    assert held.class_name == tuple(map(str, range(6, 18))) and held.z.shape == (144, 8)
    made = read_calibration(open_run.path)
    assert made == calibrated.calibration and (open_run.path / "calibration.png").stat().st_size > 1000
    assert made.similarity == "cosine" and made.gallery == {"rows": 144, "classes": 12}
    assert made.pair.rate == 0.4 and -1 < made.pair.value < 1 and made.pair.observed < 0.4
    assert made.unknown.classes == 12 and made.unknown.smallest_rate == pytest.approx(3 / 12)
    assert made.about == {"checkpoint": "best", "rate": "given"}


def test_a_sample_of_the_images_is_named(open_run):
    whole, few, many = ask(open_run, far=0.4), ask(open_run, far=0.4, queries=48), ask(open_run, far=0.4, queries=200)
    assert few.calibration.gallery == {"rows": 48, "classes": 12}
    assert (
        "made from a random sample of 48 of 144 validation images, of 12 of 12 classes (--queries)" in few.table().notes
    )
    assert many.calibration == whole.calibration
    assert ask(open_run, far=0.4, queries=10).calibration.gallery == {"rows": 10, "classes": 5}
    for wrong, message in ((0, "queries must be 1 or more"), (5, "--queries must be 6 or more")):
        with pytest.raises(LikewiseError, match=message):
            ask(open_run, queries=wrong)


def test_a_rate_that_is_too_small_is_refused_and_the_default_is_not(open_run, tmp_path):
    refused = ask(open_run, far=0.001, out=str(tmp_path / "other.png")).calibration
    assert refused.pair.value is None and refused.pair.smallest_rate == pytest.approx(4 / 66)
    assert "12 validation classes can promise a false-accept rate of 0.0607 for pairs" in refused.pair.reason
    assert (tmp_path / "other.png").exists() and not (open_run.path / "calibration.png").exists()
    default = ask(open_run).calibration
    assert default.pair.rate == pytest.approx(4 / 66) and default.pair.value is not None
    assert default.about["rate"] == "default"


def test_precision(open_run):
    made = ask(open_run, precision=0.1).calibration
    assert made.pair.aim == "precision" and made.pair.rate == pytest.approx(0.9) and 0 < made.same_pairs < 0.1
    assert made.unknown.value is not None and made.unknown.observed <= 0.9


def test_settings_that_make_no_sense(open_run):
    for settings, message in (
        ({"far": 0.01, "precision": 0.9}, "give --far or --precision, not both"),
        ({"far": 1.5}, "--far must lie between 0 and 1, got 1.5"),
        ({"precision": 0.0}, "--precision must lie between 0 and 1, got 0.0"),
        ({"out": "figure.pdf"}, "--out must end in .png"),
    ):
        with pytest.raises(LikewiseError, match=message):
            ask(open_run, **settings)


def test_training_and_test_classes_are_never_used(settings):
    plain = train(Train(**settings | {"evaluate": False}))
    with pytest.raises(LikewiseError, match=r"must have a validation split"):
        ask(plain)
    seen = train(
        Train(**settings | {"evaluate": False, "out": settings["out"] + "2", "protocol": "SeenClasses(val=0.3)"})
    )
    with pytest.raises(LikewiseError, match="training classes, but 24 of"):
        ask(seen)


def test_several_labels_and_relevance_between_samples_are_refused():
    def trained(relevance):
        return Train(data="x", relevance=relevance)

    plain = Items("shop", np.array([0, 1]), ("dress|red", "red"))
    check_classes(trained(None), plain)
    check_classes(trained("TreeDepth()"), plain)  # samples still have one class each
    several = Items("shop", plain.y, plain.class_name, label_name=("dress", "red"), label_sets=((0, 1), (1,)))
    with pytest.raises(LikewiseError, match="'shop' have several labels"):
        check_classes(trained("SharedLabels()"), several)
    with pytest.raises(LikewiseError, match=r"relevance of single samples, JudgedPairs"):
        check_classes(trained("JudgedPairs(file='pairs.csv')"), plain)


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


def test_the_figure():
    """True accepts with the chosen threshold, false rejects on normal quantiles, and reliability."""
    accepts, rejects, reliability = draw_calibration(CURVES, {"pair": 0.5, "unknown": None}).axes
    curve, bound, dot = accepts.lines[:3]
    assert curve.get_xdata().tolist() == [1, 0.1] and curve.get_ydata().tolist() == [100, 80]
    assert bound.get_xdata().tolist() == [1, 0.2] and (dot.get_xdata()[0], dot.get_ydata()[0]) == (0.1, 80)
    assert accepts.get_xscale() == "log"
    line = rejects.lines[0]
    assert line.get_xdata()[0] == pytest.approx(norm.ppf(0.1)) and line.get_ydata()[0] == pytest.approx(norm.ppf(0.2))
    assert len(line.get_xdata()) == 1 and rejects.lines[1].get_xdata()[0] == pytest.approx(norm.ppf(0.1))
    np.testing.assert_allclose(reliability.lines[1].get_xydata(), [[20, 30], [90, 80]])
    assert reliability.get_title(loc="left") == "probability of the neighbour: off by 10.0 %"
