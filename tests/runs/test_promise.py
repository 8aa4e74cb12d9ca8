"""The promise of a threshold, word by word."""

import math

from made_calibration import threshold

from likewise.runs.promise import percent, promise


def test_promises_by_hand():
    assert promise(threshold(0.5)) == (
        "With 95 % confidence, at most 1 % of images of classes that are not in the gallery are taken for a known class, "
        "by 30 validation classes; 90 % of images of known classes are accepted."
    )
    assert promise(threshold(0.5, true_accepts=math.nan, rate=0.005), "pair") == (
        "With 95 % confidence, at most 0.5 % of pairs of different classes are taken for the same class, by 30 validation "
        "classes."
    )
    assert promise(threshold(0.5, aim="precision", rate=0.05)).startswith(
        "With 95 % confidence, at least 95 % of those that are taken for a known class are so rightly"
    )
    assert promise(threshold(None)) == "No threshold: 30 classes promise 0.2 at best."
    assert percent(0.95) == "95 %" and percent(0.001) == "0.1 %"
