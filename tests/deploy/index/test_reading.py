"""What a similarity means: levels by hand, without the classes that trained, and the threshold of a calibrated run."""

import dataclasses

import numpy as np
import pytest
from made_calibration import make_calibration, threshold
from make_index import make_rows

from likewise.deploy.index.known_unknown import levels_of


def by_hand(rows, left_out=()):
    near = []
    for i, z in enumerate(rows.vectors):
        if rows.label(i) not in left_out:
            near.append(max(float(z @ other) for j, other in enumerate(rows.vectors) if rows.label(j) != rows.label(i)))
    return np.quantile(near, 0.9), np.quantile(near, 0.5)


def test_levels_by_hand():
    rows = make_rows(60)
    found = levels_of(rows, None)
    assert (found.same, found.similar) == pytest.approx(by_hand(rows), abs=1e-6)  # float32
    assert found.source.startswith("10 % of the images here have an image of another class")


def test_classes_that_trained_are_no_queries():
    rows = make_rows(60)
    found = levels_of(rows, None, ["wren"])
    assert (found.same, found.similar) == pytest.approx(by_hand(rows, ["wren"]), abs=1e-6)
    assert levels_of(rows, None, ["wren", "robin"]) == levels_of(rows, None)  # one class is too few


def test_the_threshold_of_a_calibrated_run():
    rows = make_rows(60)
    found = levels_of(rows, make_calibration(0.97))
    assert found.same == 0.97 and found.source == "the threshold of the calibrated run"
    assert found.similar == levels_of(rows, None).similar
    low = levels_of(rows, make_calibration(-0.5))
    assert low.same == low.similar == -0.5
    refused = dataclasses.replace(make_calibration(0.5), unknown=threshold(None))
    assert levels_of(rows, refused) == levels_of(rows, None)


def test_too_little_to_say():
    assert levels_of(make_rows(19), None) is None
    assert levels_of(make_rows(40, names=("wren",)), None) is None


def test_rows_with_several_labels_have_no_levels():
    rows = make_rows(60)
    assert levels_of(dataclasses.replace(rows, labels=tuple((name, "bird") for name in rows.class_name)), None) is None
