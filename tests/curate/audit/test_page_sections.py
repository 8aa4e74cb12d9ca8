"""Sections of the audit page about the review: forecast, result and annotators."""

import pytest
from audit_folder import write_audit
from planted_audit import write_forecast

from likewise.core.files import read_json, write_csv, write_json
from likewise.curate.audit.page import write_page
from likewise.curate.audit.page_sections import forecast_view, nice_ticks, proof_ends
from likewise.curate.audit.proof import write_proof
from likewise.curate.audit.weighed_votes import CONSENSUS_COLUMNS, WORKER_COLUMNS


def written(folder):
    return write_page(folder, lambda row: None, quiet=True).read_text("utf-8")


def test_ticks_are_round_and_contain_the_ends():
    assert nice_ticks(-1.0, 5.0) == [-1, 0, 1, 2, 3, 4, 5]
    assert nice_ticks(0, 395) == [0, 100, 200, 300, 400]
    for low, high in ((-0.013, 0.002), (0.0, 0.0), (-7.5, 123.0)):
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low and ticks[-1] >= high and len(ticks) <= 8


def test_places_of_the_curve(tmp_path):
    view = forecast_view(write_forecast(tmp_path))
    assert view.flat == 0.5 and view.flat_line["k"] == 20 and view.last["k"] == 40
    r1 = view.lines[0]
    x, y = zip(*r1.line)
    assert x == (0, 0.5, 1) and y == pytest.approx((1 / 6, 0.5, 0.5)) and len(r1.band) == 6  # from -1 to +5 points
    assert r1.band[2] == (1, 1) and r1.band[3] == (1, 0) and [tick.value for tick in view.across] == [0, 10, 20, 30, 40]
    assert forecast_view(write_forecast(tmp_path, flat_at=40)).flat is None
    assert forecast_view(write_forecast(tmp_path, flat_at=None)).flat is None


def test_the_command_the_forecast_and_the_reason(tmp_path):
    write_audit(tmp_path)
    text = written(tmp_path)
    assert f"likewise audit runs/a --forecast --out {tmp_path}" in text and 'id="review"' not in text
    write_forecast(tmp_path)
    text = written(tmp_path)
    assert "--forecast" not in text and '<a href="#review">What a review brings</a>' in text
    assert "A review of all 40 suspects takes about 2.6 min" in text and "flat from 20" in text
    assert "+2.0 (\N{MINUS SIGN}1.0 to +5.0)" in text and "bring 90 % of the gain in MAP@R" in text
    write_forecast(tmp_path, reason="no label is suspect", curve=[])
    assert "There is no forecast: no label is suspect." in written(tmp_path)


def test_forecast_and_result(tmp_path):
    write_audit(tmp_path)
    about = write_forecast(tmp_path)
    row = {
        "metric": "R@1",
        "before": 0.5,
        "after": 0.53,
        "difference": 0.03,
        "low": None,
        "high": None,
        "reason": "few",
    }
    write_proof(tmp_path, about, [("head", [row], "<i>note"), ("network", [], "")], 40, "decisions")
    text = written(tmp_path)
    assert (
        "After decisions about 40 suspects," in text
        and "The head that was forecast" in text
        and "&lt;i&gt;note" in text
    )
    assert (
        "<td>yes</td>" in text
        and "R@1: The result has no interval (few), so it may be chance." in text
        and "The whole network" in text
    )
    none = {
        "forecast": dict.fromkeys(("gain", "low", "high"), 0.0),
        "realised": {"gain": 0.0, "low": None, "high": None},
    }
    assert proof_ends([none]) == (-1.0, 1.0) and proof_ends([]) == (-1.0, 1.0)


def test_annotators(tmp_path):
    write_audit(tmp_path)
    consensus = [
        [6, "", "tit", "tit", 0.01, "agreed", 0.99, 2, 2, "tit x 2"],
        [7, "", "tit", "owl", 0.1, "other label", 0.1, 3, 2, "owl x 2|tit x 1"],
        [8, "", "tit", "tit", 0.4, "undecided", 0.5, 2, 1, "owl x 1|tit x 1"],
    ]
    write_csv(tmp_path / "consensus.csv", CONSENSUS_COLUMNS, consensus)
    workers = [["<b>ann", 4, 0.5, 0.3, 0.7, 0.6, "tit", "owl", 1], ["bob", 3, 0.9, 0.8, 1, "", "", "", 0]]
    write_csv(tmp_path / "annotators.csv", WORKER_COLUMNS, workers)
    facts = {"votes": 7, "samples": 3, "workers": 2, "disputed": 2, "several": 3, "features": False}
    write_json(tmp_path / "audit.json", read_json(tmp_path / "audit.json", "test") | {"votes": facts})
    text = written(tmp_path)
    assert "7 votes of 2 workers about 3 samples" in text and "votes alone" in text
    assert "&lt;b&gt;ann" in text and "30.0% to 70.0%" in text and "tit as owl, once" in text
    assert text.index("owl x 1, tit x 1") < text.index("owl x 2, tit x 1") and "Votes: tit x 2" not in text
    assert '<th scope="row">undecided</th><td class="number">1</td>' in text
