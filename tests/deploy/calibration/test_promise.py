"""The promise of a threshold, word by word."""

import math

from made_calibration import threshold

from likewise.deploy.calibration.thresholds import describe_promise, percent


def test_promises_by_hand():
    first = "On new classes like the 30 validation classes, in 95 % of draws, at "
    assert describe_promise(threshold(0.5)) == (
        f"{first}most 1 % of images of a class that is not in the gallery are taken for a known class. Among images of known "
        "classes, 90 % are accepted."
    )
    assert describe_promise(threshold(0.5, true_accepts=math.nan, rate=0.005), "pair") == (
        f"{first}most 0.5 % of pairs of images of two classes are taken for one class."
    )
    right = {"aim": "precision", "rate": 0.05}
    assert describe_promise(threshold(0.5, **right)).startswith(
        f"{first}least 95 % of accepted images get the right class, if"
    )
    assert describe_promise(threshold(0.5, **right), "pair").startswith(
        f"{first}least 95 % of accepted pairs show one class, if"
    )
    assert describe_promise(threshold(None)) == "No threshold: 30 classes promise 0.2 at best."
    assert percent(0.95) == "95 %" and percent(0.0123456) == "1.23 %"
