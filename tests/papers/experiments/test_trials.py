"""Trials of a search: what they are worth, given up, broken off, and the final runs of the best."""

import json

import pytest
from likewise.errors import LikewiseError

from likewise.learn.training import fit
from likewise.papers import tune as trials
from likewise.papers.benchmark_table import BenchmarkTable, lay_out
from likewise.papers.tune import tune
from likewise.runs.folder import Run

pytest.importorskip("optuna")


def runs_in(folder):
    return [Run(path) for path in sorted((folder / "runs").iterdir())]


def test_a_trial_is_worth_the_mean_over_folds_of_the_best_validation(search_config):
    found = tune(search_config("lr=1e-4..1e-1 log", "dim=4|8", "loss.miner.eps=0..0.5"))
    about = json.loads((found.folder / "tune.json").read_text("utf-8"))
    assert about["count"] == {"complete": 3, "pruned": 0, "failed": 0, "running": 0, "interrupted": 0}
    assert about["best"]["value"] == max(t["value"] for t in about["trials"])
    for trial in about["trials"]:
        folds = {}
        for run in runs_in(found.folder):
            settings = run.about["config"]
            if settings["lr"] == trial["values"]["lr"]:
                assert settings["dim"] == int(trial["values"]["dim"])
                assert f"eps={trial['values']['loss.miner.eps']}" in settings["loss"]
                scores = [line["val MAP@R"] for line in run.read_log() if "val MAP@R" in line]
                assert len(scores) == 2
                folds["fold=1" in settings["protocol"]] = max(scores)
        assert trial["folds"] == [folds[False], folds[True]]
        assert trial["value"] == pytest.approx((folds[False] + folds[True]) / 2)
    for run in runs_in(found.folder):  # the test split was not looked at, and networks do not fill the disk
        kept = {"config.json", "environment.json", "log.jsonl", "usage.json", "trained.npz", "done"}
        assert {p.name for p in run.path.iterdir()} == kept


def test_a_breakdown_that_is_no_settings_fault_ends_the_search(search_config, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise OSError("the disk is gone")

    with monkeypatch.context() as broken_machine:
        broken_machine.setattr(fit, "train", broken)
        with pytest.raises(LikewiseError, match="its settings are not the cause: OSError: the disk is gone"):
            tune(search_config(trials=1))
    about = json.loads((tmp_path / "out" / "tune.json").read_text())
    assert about["count"] == {"complete": 0, "pruned": 0, "failed": 0, "running": 0, "interrupted": 1}
    again = tune(search_config(trials=1)).about
    assert [t["state"] for t in again["trials"]] == ["interrupted", "complete"]
    assert again["trials"][0]["values"] == again["trials"][1]["values"]


@pytest.mark.slow
def test_a_hopeless_trial_is_given_up_after_a_fold(search_config):
    settings = {"trials": 9, "pruner": "median", "sampler": "random"}
    found = tune(search_config("lr=1e-5..1e-1 log", **settings))
    pruned = [t for t in found.about["trials"] if t["state"] == "pruned"]
    assert found.about["count"]["pruned"] == len(pruned) > 0
    assert all(len(t["folds"]) == 1 and t["value"] is None for t in pruned)
    first = [t["folds"][0] for t in found.about["trials"][: pruned[0]["number"]]]
    assert len(first) >= 5  # Optuna's start without pruning
    assert pruned[0]["folds"][0] < sorted(first)[len(first) // 2] + 1e-12


def test_an_interruption_hands_the_trial_back(search_config, tmp_path, monkeypatch):
    real, calls = trials.run_folds, []

    def interrupted(*arguments):
        calls.append(arguments[1])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(trials, "run_folds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(search_config(trials=3))
    assert json.loads((tmp_path / "out" / "tune.json").read_text())["count"]["complete"] == 1
    about = tune(search_config(trials=3)).about
    assert about["count"] == {"complete": 3, "pruned": 0, "failed": 0, "running": 0, "interrupted": 1}
    assert calls[2] == calls[1]


def test_the_final_runs_have_fresh_seeds_and_are_scored_apart_and_together(search_config):
    found = tune(search_config(trials=1, final_runs=2))
    assert isinstance(found.final, BenchmarkTable)
    assert {e.column[0] for e in found.final.entries} == {"separated", "concatenated"}
    assert all(len(e.values) == e.wanted == 2 for e in found.final.entries)
    assert all(" to " in cell.ours for cell in lay_out(found.final).shown.values())
    runs = [Run(path) for path in (found.folder / "final" / "runs").iterdir()]
    assert sorted(run.about["config"]["seed"] for run in runs) == [1, 1, 2, 2]
    assert {run.about["config"]["lr"] for run in runs} == {found.best.lr}
    stored = json.loads((found.folder / "tune.json").read_text("utf-8"))["final"]
    lines = [dict(zip(stored["columns"], line, strict=True)) for line in stored["lines"]]
    assert [(line["column"], line["metric"], line["mean"]) for line in lines] == [
        (e.column[0], e.column[1], e.ours.mean) for e in found.final.entries
    ]
    assert stored["notes"] == list(found.final.notes)
