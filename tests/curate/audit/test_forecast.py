"""Forecast of an audit: its files, its head and the terminal; and the result of the review beside it, by hand."""

import csv
import json

import numpy as np
import pytest
import torch
from audit_folder import write_audit
from likewise.config import Audit
from likewise.types import LikewiseError
from planted_audit import write_features, write_forecast

from likewise.core.files import write_csv
from likewise.curate.audit import forecast
from likewise.curate.audit import proof as module
from likewise.curate.audit.audit import audit
from likewise.curate.audit.forecast import (
    HEADS_FILE,
    ForecastHead,
    curve_cells,
    divide,
    forecast_at,
    forecast_lines,
    join_candidates,
    limit_rows,
    project,
    read_head,
)
from likewise.curate.audit.proof import (
    NETWORK_NOTE,
    about_order,
    left_open,
    proof_lines,
    prove_review,
    prove_suggestions,
    refit_head,
    write_proof,
)
from likewise.curate.audit.read import PROOF_FILE, QUEUE_FILE, read_findings, read_forecast, read_proof
from likewise.curate.audit.review_queue import read_queue
from likewise.curate.audit.summary import show_findings
from likewise.labels.many_heads import HeadSettings
from likewise.labels.posterior_update import Candidates


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecast")
    write_features(folder / "z.npz")
    settings = {"device": "cpu", "workers": 0, "quiet": True, "forecast": True, "order": "gain"}
    return audit(Audit(targets=(str(folder / "z.npz"),), out=str(folder / "audit"), **settings), say=lambda text: None)


def test_files_of_an_audit(audited):
    about = read_forecast(audited.folder)
    assert about is not None and about["order"] == "gain" and not about["reason"] and about["suspects"] > 15
    curve = about["curve"]
    assert [line["k"] for line in curve] == sorted({line["k"] for line in curve}) and curve[0]["k"] == 0
    assert curve[-1]["k"] == about["suspects"] and curve[-1]["minutes"] == pytest.approx(about["suspects"] * 4 / 60)
    for line in curve:
        for name in ("R@1", "MAP@R"):
            assert line[name]["low"] <= line[name]["gain"] <= line[name]["high"]
    with open(audited.folder / QUEUE_FILE, encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    with open(audited.folder / "audit.csv", encoding="utf-8", newline="") as file:
        flagged = {line["row"] for line in csv.DictReader(file) if line["state"] in ("flagged", "conflict")}
    assert {line["row"] for line in lines} == flagged and len(lines) == about["suspects"]
    actions = [int(line["action"]) for line in lines]
    assert actions == sorted(actions) and actions[-1] + 1 < len(lines)  # some are decided at once


def test_the_queue_is_read_again(audited):
    queue = read_queue(audited.folder)
    with open(audited.folder / QUEUE_FILE, encoding="utf-8", newline="") as file:
        rows = [int(line["row"]) for line in csv.DictReader(file)]
    assert [int(queue.row[at]) for one in queue.actions("gain") for at in one.rows] == rows
    about = read_forecast(audited.folder)
    total = about["curve"][-1]["MAP@R"]["gain"]
    if total > 0:
        assert float(queue.gain[queue.suspects].sum()) == pytest.approx(total)


def test_the_terminal_says_it(audited, capsys):
    show_findings(audited)
    said = capsys.readouterr().out
    assert "Forecast: a review of all" in said and "90 % interval" in said and "reviewed  minutes" in said
    unknown = forecast_lines({"reason": "no label is suspect"})
    assert unknown == ["Forecast of a review: unknown, because no label is suspect"]


def test_too_few_rows_and_no_forecast(tmp_path):
    write_features(tmp_path / "z.npz", wrong=4, classes=3, size=6)
    settings = {"targets": (str(tmp_path / "z.npz"),), "device": "cpu", "workers": 0, "quiet": True}
    found = audit(Audit(**settings, out=str(tmp_path / "audit"), forecast=True), say=lambda text: None)
    assert read_forecast(found.folder)["reason"] and not read_forecast(found.folder)["start"]
    without = audit(Audit(**settings, out=str(tmp_path / "audit")), say=lambda text: None)  # no forecast by default
    assert read_forecast(without.folder) is None and not (without.folder / QUEUE_FILE).exists()
    with pytest.raises(LikewiseError, match="posterior.npz.*audit with --forecast"):
        read_queue(without.folder)
    with pytest.raises(LikewiseError, match="--order gain .*--forecast"):
        audit(Audit(**settings, order="gain"), say=lambda text: None)


def test_an_interrupted_forecast_leaves_a_complete_audit(tmp_path, monkeypatch):
    def interrupt(*args, **settings):
        raise KeyboardInterrupt

    write_features(tmp_path / "z.npz")
    settings = {"targets": (str(tmp_path / "z.npz"),), "device": "cpu", "workers": 0, "quiet": True}
    monkeypatch.setattr(forecast, "forecast_review", interrupt)
    with pytest.raises(KeyboardInterrupt):
        audit(Audit(**settings, out=str(tmp_path / "audit"), forecast=True), say=lambda text: None)
    assert read_findings(tmp_path / "audit").suspects and read_forecast(tmp_path / "audit") is None


def test_suspects_that_no_head_trains_or_tests(tmp_path, monkeypatch):
    write_features(tmp_path / "z.npz")
    settings = {"targets": (str(tmp_path / "z.npz"),), "device": "cpu", "workers": 0, "quiet": True}
    monkeypatch.setattr(forecast, "divide", lambda given, *_: (torch.zeros(len(given), dtype=torch.bool),) * 2)
    monkeypatch.setattr(forecast, "project", lambda x, train: x)
    found = audit(Audit(**settings, out=str(tmp_path / "audit"), forecast=True), say=lambda text: None)
    about = read_forecast(found.folder)
    assert about["suspects"] > 15 and about["reason"] == "no suspect is among the samples that train or test the head"
    with open(found.folder / QUEUE_FILE, encoding="utf-8", newline="") as file:
        assert {line["gain"] for line in csv.DictReader(file)} == {""}  # a gain without a forecast has no unit


def test_the_curve_in_words_and_as_a_table(tmp_path):
    about = write_forecast(tmp_path)
    assert forecast_at(about, 10, "R@1") == pytest.approx({"gain": 0.01, "low": -0.005, "high": 0.025})
    assert forecast_lines(about)[-1] == "  The first 20 suspects (1 min at 4 s each) bring 90% of the gain in MAP@R."
    assert curve_cells(about)[0] == ("20", "1.3", "15", "+2.0 (-1.0 to +5.0)", "+2.0 (-1.0 to +5.0)")
    assert len(curve_cells(about)) == 2 and curve_cells(about | {"reason": "no label is suspect"}) == []


def test_rows_that_train_and_test(monkeypatch):
    given = torch.arange(100) % 10
    part = np.where(np.arange(100) < 60, "train", "test")
    train, test = divide(given, part, True, 0)
    assert train.tolist() == (part == "train").tolist() and test.tolist() == (part == "test").tolist()
    train, test = divide(given, part, False, 0)
    assert not (train & test).any() and not set(given[train].tolist()) & set(given[test].tolist())
    monkeypatch.setattr(forecast, "MAX_FORECAST_ROWS", 50)
    some = limit_rows(given, torch.ones(100, dtype=torch.bool), torch.Generator().manual_seed(0))
    assert int(some.sum()) == 50
    many = torch.arange(100) % 50
    some = limit_rows(many, torch.ones(100, dtype=torch.bool), torch.Generator().manual_seed(0))
    assert int(some.sum()) == 50 and (torch.bincount(many[some]) != 1).all()  # whole classes


def test_features_and_candidates():
    x = project(torch.randn(50, 100, generator=torch.Generator().manual_seed(0)), torch.arange(50) < 30)
    assert x.shape == (50, 64) and float(x[:30].std()) == pytest.approx(1, abs=1e-4)  # float32
    one = Candidates(torch.tensor([[3]]), torch.ones(1, 1))
    two = Candidates(torch.tensor([[1, 2, 0]]), torch.tensor([[0.5, 0.25, 0.25]]))
    both = join_candidates([one, two])
    assert both.label.tolist() == [[3, 3, 3], [1, 2, 0]] and both.probability[0].tolist() == [1, 0, 0]


def make_head(classes=24, size=10, wrong=60, as_given=True):
    """Gaussian classes: the first half trains with wrong labels, the other half tests."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), size)
    x = rng.standard_normal((classes, 12))[y] * np.linspace(2, 0.1, 12) + rng.standard_normal((len(y), 12))
    train = y < classes // 2
    given, rows = y.copy(), rng.permutation(np.flatnonzero(train))[:wrong]
    given[rows] = (y[rows] + rng.integers(1, classes // 2, wrong)) % (classes // 2)
    tensors = (torch.as_tensor(one) for one in (np.arange(len(y)), given, train, x.astype(np.float32)))
    return ForecastHead(*tensors, as_given, 3), torch.as_tensor(y)


def test_it_is_read_again(tmp_path):
    assert read_head(tmp_path) is None
    head, _ = make_head()
    head.write(tmp_path)
    again = read_head(tmp_path)
    assert (
        torch.equal(again.row, head.row)
        and torch.equal(again.given, head.given)
        and torch.equal(again.train, head.train)
    )
    torch.testing.assert_close(again.x, head.x, rtol=2**-10, atol=1e-4)  # half precision
    assert again.scored_as_given is True and again.seed == 3
    broken = dict(np.load(tmp_path / HEADS_FILE)) | {"row": np.arange(3)}
    np.savez(tmp_path / HEADS_FILE, **broken)
    with pytest.raises(LikewiseError, match="fit together.*audit again"):
        read_head(tmp_path)


def test_labels_of_a_review(tmp_path):
    findings = read_findings(write_audit(tmp_path))  # rows 0-2 wren, 3-5 robin, 6-8 tit, 9-11 owl
    row = torch.tensor([0, 3, 4, 6, 7])
    given = torch.tensor([5, 2, 2, 0, 0])
    head = ForecastHead(row, given, row < 6, torch.zeros(5, 2), False, 0)
    labels = {0: "robin", 3: None, 4: "jay", 7: "jay", 11: "tit"}  # jay is new, row 11 is not among the heads
    found = head.number_labels(findings, labels).tolist()
    assert found[:2] == [2, -1] and found[3] == 0 and found[2] == found[4] > 5
    assert head.given.tolist() == [5, 2, 2, 0, 0]


def test_correct_labels_gain_and_equal_ones_do_not():
    head, true = make_head()
    gain = {row["metric"]: row for row in refit_head(head, true, HeadSettings(dim=8, epochs=6))}
    assert list(gain) == ["R@1", "MAP@R"]
    for row in gain.values():
        assert row["difference"] == pytest.approx(row["after"] - row["before"]) and 0 < row["before"] < 1
    assert gain["MAP@R"]["low"] <= gain["MAP@R"]["difference"] <= gain["MAP@R"]["high"]
    assert gain["MAP@R"]["difference"] > 0
    same = refit_head(head, head.given, HeadSettings(dim=8, epochs=2))
    assert [row["difference"] for row in same] == [0, 0] and same[0]["low"] is None and same[0]["reason"]


def test_test_rows_are_scored_as_the_forecast_says():
    settings = HeadSettings(dim=8, epochs=2)
    head, true = make_head()
    reviewed = torch.where(
        head.train, head.given, torch.where(true % 2 == 0, -1, true)
    )  # half of the test rows removed
    given = refit_head(head, reviewed, settings)
    other, _ = make_head(as_given=False)
    own = refit_head(other, reviewed, settings)
    assert given[0]["before"] == refit_head(head, head.given, settings)[0]["before"]
    assert own[1]["before"] > given[1]["before"]  # fewer classes to confuse
    assert refit_head(other, torch.where(head.train, head.given, -1), settings) == []  # nothing is left to score


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
    with pytest.raises(LikewiseError, match="a forecast, or a run"):
        prove_review(tmp_path, findings, {}, {1})
    write_forecast(tmp_path)
    with pytest.raises(LikewiseError, match="needs decisions"):
        prove_review(tmp_path, findings, {}, set())
    with pytest.raises(LikewiseError, match="heads.npz.*audit again"):
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
