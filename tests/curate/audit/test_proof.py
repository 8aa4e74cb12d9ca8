"""Forecast and result: proof.json by hand, what the intervals leave open, and the sentences."""

import json

import pytest
from audit_folder import write_audit
from likewise.types import LikewiseError
from planted_audit import write_forecast

from likewise.core.files import write_csv
from likewise.curate.audit import proof as module
from likewise.curate.audit.forecast import PROOF_FILE, QUEUE_FILE
from likewise.curate.audit.proof import (
    NETWORK_NOTE,
    about_order,
    left_open,
    proof_lines,
    prove_review,
    prove_suggestions,
    read_proof,
    write_proof,
)
from likewise.curate.audit.read import read_findings

ROWS = [
    {"metric": "MAP@R", "before": 0.3, "after": 0.28, "difference": -0.02, "low": -0.03, "high": -0.015},
    {"metric": "RP", "difference": 0.03, "low": 0.01, "high": 0.05},
    {"metric": "R@1", "before": 0.5, "after": 0.53, "difference": 0.03, "low": 0.01, "high": 0.05},
]


def test_by_hand(tmp_path):
    about = write_forecast(tmp_path)
    found = write_proof(tmp_path, about, [("head", ROWS, "as the forecast")], 10, "decisions")
    assert found == json.loads((tmp_path / PROOF_FILE).read_text("utf-8")) == read_proof(tmp_path)
    assert found["reviewed"] == 10 and found["labels"] == "decisions" and found["reason"] == ""
    [part] = found["parts"]
    assert part["of"] == "head" and part["note"] == "as the forecast"
    first, second = part["rows"]  # in the order of the forecast; RP was not forecast
    assert first["forecast"] == pytest.approx({"gain": 0.01, "low": -0.005, "high": 0.025})
    assert first["realised"] == {"gain": 0.03, "low": 0.01, "high": 0.05} and first["before"] == 0.5
    assert (first["metric"], first["inside"]) == ("R@1", False) and "overlap" in first["note"]
    assert (second["metric"], second["inside"], second["note"]) == ("MAP@R", False, "")
    assert proof_lines(found)[1:] == [
        "head, MAP@R: forecast +1.0 (-0.5 to +2.5) points, realised -2.0 (-3.0 to -1.5): outside of the forecast interval.",
        "head: as the forecast",
    ]


def test_what_intervals_leave_open():
    forecast = {"gain": 0.02, "low": -0.01, "high": 0.05}
    assert left_open(forecast, {"gain": 0.03, "low": 0.01, "high": 0.05}, True) == ""
    assert "contains 0" in left_open(forecast, {"gain": 0.03, "low": -0.01, "high": 0.05}, True)
    assert "overlap" in left_open(forecast, {"gain": 0.06, "low": 0.04, "high": 0.08}, False)
    assert left_open(forecast, {"gain": 0.07, "low": 0.06, "high": 0.08}, False) == ""
    none = left_open(forecast, {"gain": 0.07, "low": None, "high": None}, False, "3 classes")
    assert none == "The result has no interval (3 classes), so it may be chance."


def test_without_a_forecast_or_its_metrics(tmp_path):
    assert read_proof(tmp_path) is None and prove_suggestions(tmp_path, {"rows": ROWS}) is None
    about = write_forecast(tmp_path, reason="no label is suspect", curve=[])
    found = write_proof(tmp_path, about, [("network", ROWS, "")], 40, "decisions")
    assert found["parts"][0]["rows"] == [] and proof_lines(found) == ["Nothing can be compared: no label is suspect"]
    about = write_forecast(tmp_path)
    assert write_proof(tmp_path, about, [("network", ROWS[1:2], "")], 40, "decisions")["reason"].startswith("no metric")
    assert "no forecast" in write_proof(tmp_path, None, [("network", ROWS, "")], 40, "decisions")["reason"]
    (tmp_path / PROOF_FILE).write_text('{"rows": []}')  # of an earlier version
    assert read_proof(tmp_path) is None


def test_other_suspects_than_the_first_are_named():
    assert about_order(range(100), set(range(50))) == "" == about_order(range(100), {200})
    assert about_order(range(100), {0, 98, 99, 200}).startswith("1 of the 3 reviewed suspects are among the first 3")


def test_a_review_without_anything_to_compare(tmp_path):
    findings = read_findings(write_audit(tmp_path))
    with pytest.raises(LikewiseError, match="needs a forecast, or a run to train again"):
        prove_review(tmp_path, findings, {}, {1})
    write_forecast(tmp_path)
    with pytest.raises(LikewiseError, match="needs decisions about labels, but there are none"):
        prove_review(tmp_path, findings, {}, set())
    with pytest.raises(LikewiseError, match=r"needs heads.npz, but it is missing; audit again"):
        prove_review(tmp_path, findings, {}, {1})


def test_head_and_network_of_a_review(tmp_path, monkeypatch):
    findings = read_findings(write_audit(tmp_path))
    write_forecast(tmp_path)
    write_csv(tmp_path / QUEUE_FILE, ("place", "row"), [(0, 1), (1, 8)])

    class Head:
        scored_as_given = True

        def number_labels(self, findings, labels):
            return labels

    monkeypatch.setattr(module, "read_head", lambda folder: Head())
    monkeypatch.setattr(module, "refit_head", lambda head, labels: ROWS)
    again = {"rows": ROWS, "summary": "B is better"}
    found = prove_review(tmp_path, findings, {1: "robin"}, {1, 4}, lambda: again)
    assert found["reviewed"] == 1 and [part["of"] for part in found["parts"]] == ["head", "network"]
    assert found["parts"][0]["note"].startswith("The labels of 1 other sample were decided too")
    assert found["parts"][1]["note"] == f"{NETWORK_NOTE} B is better."
