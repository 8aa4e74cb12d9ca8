"""calibration.json comes back as it was written; probabilities and decisions by hand."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.runs.calibration import (
    Calibration,
    Threshold,
    Validation,
    read_calibration,
    read_validation,
    write_calibration,
    write_validation,
)

PAIR = Threshold(0.5, 0.01, 0.004, 0.006, 0.8, 30)
REFUSED = Threshold(None, 0.001, 0.02, math.nan, math.nan, 30, "30 validation classes can promise 0.02, not 0.001")
FOUND = Calibration("cosine", PAIR, REFUSED, (0.2, 0.4, 0.8), (0.0, 0.5, 0.9), {"rows": 90, "classes": 30})


def test_a_calibration_comes_back(tmp_path):
    assert read_calibration(tmp_path) is None
    write_calibration(tmp_path, FOUND)
    json.loads(
        (tmp_path / "calibration.json").read_text(), parse_constant=pytest.fail
    )  # no NaN: other readers refuse it
    back = read_calibration(tmp_path)
    assert back.pair == PAIR and back.gallery == {"rows": 90, "classes": 30} and back.knot_sim == FOUND.knot_sim
    assert back.unknown.value is None and math.isnan(back.unknown.observed) and math.isnan(back.prevalence)


def test_probability_and_decision_by_hand():
    sim = np.array([0.0, 0.3, 0.4, 0.6, 1.0])
    np.testing.assert_allclose(FOUND.probability(sim), [0, 0.25, 0.5, 0.7, 0.9], rtol=0, atol=1e-15)
    known = replace(FOUND, unknown=replace(PAIR, value=0.4))
    assert known.is_unknown(sim).tolist() == [True, True, False, False, False]
    with pytest.raises(LikewiseError, match="30 validation classes can promise 0.02"):
        FOUND.is_unknown(sim)


@pytest.mark.parametrize(
    "spoil", [{"knot_sim": [0.4, 0.2, 0.8]}, {"knot_probability": [0, 2, 0]}, {"similarity": "dot"}, {"pair": {}}, {"x": 1},
              {"pair": {"value": None, "rate": 0.1, "smallest_rate": 1, "observed": 0, "true_accepts": 0, "classes": 3}},
              {"pair": 1.5}, {"unknown": []}, {"unknown": None}, {"about": 5}, {"about": {"rows": 5}},
              {"about": {"own_accepts": "x"}}, {"curves": {"a": ["b"]}},
              {"gallery": {"rows": "90"}}, {"prevalence": "0.5"}, {"knot_sim": [0, 1, math.inf]}, {"knot_sim": [10**400, 1, 2]},
              *({"pair": asdict(PAIR) | {name: value}} for name, value in [
                  ("value", math.inf), ("value", math.nan), ("value", True), ("rate", "0.01"), ("rate", None), ("aim", "other"),
                  ("classes", 3.5), ("reason", 5), ("observed", [1])])]
)  # fmt: skip
def test_a_damaged_file(tmp_path, spoil):
    write_calibration(tmp_path, FOUND)
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | spoil))
    with pytest.raises(LikewiseError, match="calibration.json is damaged"):
        read_calibration(tmp_path)


def test_validation_embeddings_come_back(tmp_path):
    assert read_validation(tmp_path) is None
    z, y = np.eye(4, 3, dtype=np.float32), np.array([0, 1, 1, 0])
    for group in (None, np.array([-1, 3, 3, 4])):
        write_validation(tmp_path, Validation(z, y, ("wren", "tit ü"), "euclidean", group))
        back = read_validation(tmp_path)
        assert back.class_name == ("wren", "tit ü") and back.similarity == "euclidean"
        assert (back.z == z).all() and (back.y == y).all()
        assert back.group is None if group is None else (back.group == group).all()
    write_validation(tmp_path, Validation(z, y, ("wren",), "cosine"))
    with pytest.raises(LikewiseError, match="calibration.npz is damaged"):
        read_validation(tmp_path)
