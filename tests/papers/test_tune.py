"""tune: the objective by hand, what fails, what is pruned, what two processes share, and what is left behind."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from likewise.config import Train, Tune
from likewise.errors import LikewiseError
from PIL import Image

from likewise.cli import main as cli
from likewise.learn.training import fit
from likewise.learn.training.fit import train
from likewise.papers import tune as module
from likewise.papers.benchmark_table import BenchmarkTable, lay_out
from likewise.papers.grid import as_train, read_grid
from likewise.papers.tune import tune
from likewise.runs.folder import Run

pytest.importorskip("optuna")


def runs_in(folder):
    return [Run(path) for path in sorted((folder / "runs").iterdir())]


def test_the_same_command_goes_on_and_trains_nothing_twice(search_config, monkeypatch):
    first = tune(search_config(trials=2))
    again = tune(search_config(trials=4))
    assert [t["values"] for t in again.about["trials"][:2]] == [t["values"] for t in first.about["trials"]]
    assert again.about["count"]["complete"] == 4
    monkeypatch.setattr(module, "run_folds", None)  # nobody is there to train
    assert tune(search_config(trials=4)).about["trials"] == again.about["trials"]
    with pytest.raises(LikewiseError, match="holds another search"):
        tune(search_config("lr=1e-4..1e-2 log"))


def test_the_journal_is_no_link(search_config, tmp_path):
    """Its last line is cut off if it is not whole."""
    (tmp_path / "own.txt").write_text("the user's own text")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.journal").symlink_to(tmp_path / "own.txt")
    with pytest.raises(LikewiseError, match="study.journal' must not be a link; .* --storage"):
        tune(search_config(trials=1))
    assert (tmp_path / "own.txt").read_text() == "the user's own text"


def test_when_all_fails_it_says_why(search_config, tmp_path):
    with pytest.raises(LikewiseError, match="none of 2 has .*unit vectors"):
        tune(search_config("lr=1e30..1e31", trials=2))
    assert json.loads((tmp_path / "out" / "tune.json").read_text())["count"]["failed"] == 2


def test_a_run_folder_is_a_config_and_a_plain_protocol_one_fold(run, tmp_path, capsys):
    out = tmp_path / "out"
    ranges = ["lr=1e-4..1e-2 log", "steps=4..9"]
    cli.main(["tune", str(run.path), "--ranges", *ranges, "--trials", "2", "--out", str(out), "--device", "cpu"])
    text = capsys.readouterr().out
    assert "trials: 2 complete" in text
    assert "best.toml" in text
    assert Image.open(out / "tune.png").width > 1000
    about = json.loads((out / "tune.json").read_text())
    assert about["folds"] == 1
    assert about["protocol"].startswith("UnseenClasses(") and "val=0.3" in about["protocol"]
    assert all(4 <= t["values"]["steps"] <= 9 for t in about["trials"])
    assert {r.about["config"]["steps"] for r in runs_in(out)} == {t["values"]["steps"] for t in about["trials"]}


@pytest.mark.parametrize(
    ("ranges", "settings", "words"),
    [
        (("protocol=ClassFolds()|UnseenClasses(val=0.2)",), {}, "'protocol' must be the same for all trials"),
        (("protocol.folds=2..4",), {}, "'protocol' must be the same for all trials"),
        (("seed=0..9",), {}, "'seed' must be the same for all trials"),
        (("select=R@1|MAP@R",), {}, "'select' must be the same for all trials"),
        (("test_every=1e|2e",), {}, "must not use the test split, but test_every does"),
        (("lr=0..1",), {"protocol": "UnseenClasses()"}, "has no validation split"),
        (("lr=0..1",), {"jobs": 0}, "jobs must be between 1 and 1024"),
        (("margin=0..1",), {}, "no setting 'margin'"),
        (("reality-check",), {"storage": "nosuch://x"}, "the storage 'nosuch://x' cannot be used"),
    ],
)
def test_what_cannot_be_searched_is_named(search_config, ranges, settings, words):
    with pytest.raises(LikewiseError) as error:
        tune(search_config(*ranges, **settings))
    assert words in str(error.value)


def test_without_optuna_it_says_what_to_install(search_config, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "likewise.papers.optuna_study", raising=False)
    with pytest.raises(LikewiseError, match="pip install 'likewise\\[tune\\]'"):
        tune(search_config())


@pytest.mark.slow
@pytest.mark.process
def test_two_processes_share_a_search(search_config, tmp_path):
    settings = search_config(trials=6)
    words = [
        "tune",
        settings.config,
        "--ranges",
        *settings.ranges,
        "--trials",
        "6",
        "--out",
        settings.out,
        "--device",
        "cpu",
    ]
    command = [sys.executable, "-m", "likewise", *words, "--pruner", "none", "--quiet"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    ends = [(process.communicate(timeout=600)[1], process.returncode) for process in both]
    assert [code for _, code in ends] == [0, 0], ends
    about = json.loads((tmp_path / "out" / "tune.json").read_text())
    assert about["count"]["complete"] == 6
    assert about["count"]["running"] == 0
    drawn = [t["values"]["lr"] for t in about["trials"] if t["state"] == "complete"]
    assert len(set(drawn)) == 6  # they do not draw alike


def test_a_search_kept_in_a_database_goes_on_from_there(search_config, tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    first = tune(search_config(trials=2, storage=storage, pruner="none"), say=lambda line: None)
    again = tune(search_config(trials=3, storage=storage, pruner="none"), say=lambda line: None)
    assert first.about["count"]["complete"] == 2 and again.about["count"]["complete"] == 3
    assert [t["values"] for t in again.about["trials"]][:2] == [t["values"] for t in first.about["trials"]]
    assert again.about["storage"] == storage


def test_what_another_process_saw_later_is_not_written_over(search_config, tmp_path, monkeypatch):
    """A trial ends elsewhere, and is written, between our look at the search and our writing."""

    looks, real = [], module.summary

    def late(*arguments):
        found = real(*arguments)
        looks.append(found["count"]["complete"])
        return found | {"count": found["count"] | {"complete": 1}} if len(looks) == 1 else found

    monkeypatch.setattr(module, "summary", late)
    module.tune(search_config(trials=2))
    assert json.loads((tmp_path / "out" / "tune.json").read_text())["count"]["complete"] == 2
    assert len(looks) == 3, "until nothing changes any more"


def test_a_damaged_summary_is_one_sentence_and_the_search_goes_on_without_it(search_config, tmp_path):
    """What was searched is in the storage."""
    tune(search_config(trials=1))
    file = tmp_path / "out" / "tune.json"
    for text in ("{", "[]", "[" * 100_000):
        file.write_text(text)
        with pytest.raises(LikewiseError, match="tune: .*tune.json is damaged .*delete it: it is written again"):
            tune(search_config(trials=1))
    file.unlink()
    assert tune(search_config(trials=1)).about["count"]["complete"] == 1


def test_a_run_that_had_no_validation_part_is_searched_in_folds_with_batches_that_fit(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("likewise.papers.optuna_study.draw_search", lambda file, *_: file.touch())
    run = train(Train(**settings | {"steps": 4, "sampler": None}))
    assert "batch=48" in run.about["config"]["sampler"]  # all 12 training classes; a fold has 9
    said, out = [], tmp_path / "out"
    found = tune(
        Tune(str(run.path), ("lr=1e-4..1e-1 log",), trials=1, out=str(out), device="cpu", quiet=True), said.append
    )
    assert found.about["count"]["complete"] == 1
    assert "the search uses ClassFolds() instead" in said[0]
    assert {"batch=36" in r.about["config"]["sampler"] for r in runs_in(out)} == {True}


def test_axes_are_for_bench(search_config, tmp_path):
    settings = search_config()
    with open(settings.config, "a") as file:
        file.write("[axes]\nseed = [1]\n")
    with pytest.raises(LikewiseError, match="must have no axes, which are for bench"):
        tune(settings)


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
    real, calls = module.run_folds, []

    def interrupted(*arguments):
        calls.append(arguments[1])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(module, "run_folds", interrupted)
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


@pytest.mark.slow
def test_the_best_settings_can_be_read_by_bench_and_tune(search_config):
    found = tune(search_config("lr=1e-4..1e-1 log", "loss.base=0..1", trials=2))
    grid = read_grid(found.folder / "best.toml")
    again = as_train(grid.settings, evaluate=False, device="cpu", allow_imports=False)
    assert again == found.best
    assert again.lr == found.about["best"]["values"]["lr"]
    assert grid.ranges == {"lr": "1e-4..1e-1 log", "loss.base": "0..1"}
    more = tune(
        Tune(str(found.folder / "best.toml"), trials=1, out=str(found.folder / "more"), device="cpu", quiet=True)
    )
    assert more.about["count"]["complete"] == 1


def test_what_fails_is_worth_nothing_and_listed_with_its_reason(search_config):
    found = tune(search_config("loss=Triplet()|Triplet(margin=-1.0)", "lr=1e-3|1e30", trials=8, sampler="random"))
    failed = [t for t in found.about["trials"] if t["state"] == "failed"]
    assert found.about["count"]["failed"] == len(failed)
    assert found.about["count"]["complete"] + len(failed) == 8
    assert all(t["value"] == 0 for t in failed)
    reasons = {(t["values"]["loss"], t["values"]["lr"]): t["reason"] for t in failed}
    assert "margin must be at least 0" in reasons["Triplet(margin=-1.0)", "1e-3"]
    assert "z must be unit vectors" in reasons["Triplet()", "1e30"]
    assert found.about["best"]["values"] == {"loss": "Triplet()", "lr": "1e-3"}


def test_figures_of_optuna_are_drawn_from_the_study_as_documented(search_config, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(import json\nimport optuna\n.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    tune(search_config("lr=1e-4..1e-1 log", "dim=4|8", trials=4, out="tune/mine"))
    exec(code, {})
    assert Image.open("importance.png").width > 300
