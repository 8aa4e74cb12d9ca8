"""Forecast of an audit: its files, the lines on the terminal, and the rows that train and test."""

import csv

import numpy as np
import pytest
import torch
from likewise.config import Audit
from likewise.types import LikewiseError
from planted_audit import write_features, write_forecast

from likewise.curate.audit import forecast
from likewise.curate.audit.audit import audit
from likewise.curate.audit.forecast import (
    QUEUE_FILE,
    curve_cells,
    divide,
    forecast_at,
    forecast_lines,
    join_candidates,
    limit_rows,
    project,
    read_forecast,
)
from likewise.curate.audit.read import read_findings
from likewise.curate.audit.review_queue import read_queue
from likewise.curate.audit.summary import show_findings
from likewise.labels.candidates import Candidates


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
    with pytest.raises(LikewiseError, match=r"must have posterior.npz, but .* has none; audit with --forecast"):
        read_queue(without.folder)
    with pytest.raises(LikewiseError, match="--order gain must be used with --forecast"):
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
