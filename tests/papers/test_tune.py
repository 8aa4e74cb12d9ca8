"""tune: the objective by hand, what fails, what is pruned, what two processes share, and what is left behind."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from likewise.config import Train, Tune
from likewise.contracts import Loss
from likewise.errors import LikewiseError
from PIL import Image

from likewise.cli import main as cli
from likewise.core.settings.spec import build, find, usage
from likewise.learn.training import fit
from likewise.learn.training.fit import train
from likewise.papers import tune as module
from likewise.papers.benchmark_table import BenchmarkTable, lay_out
from likewise.papers.grid import as_train, read_grid
from likewise.papers.tune import apply_values, built_in, read_entries, read_range, read_ranges, tune
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
    with pytest.raises(LikewiseError, match="must not be a link; .* --storage"):
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
        with pytest.raises(LikewiseError, match="tune.json is damaged .*delete it"):
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
        with pytest.raises(LikewiseError, match="not the cause: OSError: the disk"):
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


BASE = Train(data="glyphs", loss="MultiSimilarity()", sampler="SamplesPerClass(batch=24, per_class=4)")


def ends(text, name="lr"):
    r = read_range(name, text, BASE)
    return r.low, r.high, r.log, r.whole, r.unit


def test_texts_of_ranges():
    assert ends("1e-5..1e-2 log") == (1e-5, 1e-2, True, False, "")
    assert ends(" 0 .. 1 ", "loss.base") == (0, 1, False, False, "")  # a float argument, whatever the ends look like
    assert ends("-1.5..2.") == (-1.5, 2, False, False, "")
    assert ends("8..64 log", "dim") == (8, 64, True, True, "")
    assert ends("16..64", "sampler.batch") == (16, 64, False, True, "")
    assert ends("100..500", "warmup") == (100, 500, False, True, "")
    assert ends("10e..40e", "warmup") == (10, 40, False, True, "e")
    assert read_range("dim", "64| 128 |256", BASE).choices == ("64", "128", "256")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("lr", "1..0", "range lr must have low < high, got '1..0'"),
        ("lr", "0..1 log", "range lr must have 0 < low < high"),
        ("lr", "a..b", "range lr must lie between two numbers"),
        ("lr", "0...5", "range lr must lie between two numbers"),
        ("lr", "0..inf", "range lr must have low < high"),
        ("dim", "1.5..8", "dim is a whole number"),
        ("dim", "1..99999999999999999999", "dim is a whole number up to 2**53"),
        ("dim", "64||128", "choices separated by |"),
        ("dim", "64|64", "choices separated by |"),
        ("dims", "1..8", "no setting 'dims'; did you mean 'dim'?"),
        ("loss.alhpa", "1..8", "MultiSimilarity has no argument 'alhpa'; did you mean 'alpha'?"),
        ("loss.miner.epss", "0..1", "HardPairs has no argument 'epss'; did you mean 'eps'?"),
        ("loss.alpha.x", "0..1", "2.0 has no argument 'x'"),
        ("losses.alpha", "0..1", "only loss, relevance, sampler, protocol, confidence, terms, noise, head have arguments, got"),
        ("noise.share", "0..1", "noise is not set"),
    ],
)  # fmt: skip
def test_wrong_ranges_are_named(name, text, words):
    with pytest.raises(LikewiseError) as error:
        read_range(name, text, BASE)
    assert words in str(error.value)


def test_ranges_are_tried_at_both_ends_before_anything_runs(unchecked):
    with pytest.raises(LikewiseError, match="lr must be 0 or more"):
        read_ranges({"lr": "-1..1"}, BASE)
    with pytest.raises(LikewiseError, match="dim must be a whole number, got 'many'"):
        read_ranges({"lr": "0..1", "dim": "8|many|16"}, BASE)
    with pytest.raises(LikewiseError, match="there must be a range to search"):
        read_ranges({}, BASE)
    with pytest.raises(LikewiseError, match="a range must be name=low..high"):
        read_entries(["lr"], BASE.loss)


def test_values_reach_settings_and_arguments():
    entries = read_entries(
        [
            "lr=1e-5..1e-2 log",
            "dim=8|16",
            "epochs=1..9",
            "loss.miner.eps=0..0.5",
            "loss.base=0..1",
            "noise=none|Uniform()",
        ],
        BASE.loss,
    )
    ranges = read_ranges(entries, BASE)
    values = {"lr": 0.001, "dim": "16", "epochs": 4, "loss.miner.eps": 0.25, "loss.base": 0.5, "noise": "none"}
    config = apply_values(BASE, ranges, values)
    assert (config.lr, config.dim, config.epochs, config.noise) == (0.001, 16, 4, None)
    loss = build(config.loss, Loss)
    assert (loss.miner.eps, loss.base, loss.alpha) == (0.25, 0.5, 2.0)
    assert config.sampler == BASE.sampler


def test_a_choice_may_be_a_part_and_a_searched_part_may_have_searched_arguments():
    base = Train(data="glyphs", loss="Triplet()")
    ranges = read_ranges(
        {"loss.margin": "0..1", "loss": "Triplet()|Margin()", "loss.miner": "SemiHard()|DistanceWeighted()"}, base
    )
    config = apply_values(base, ranges, {"loss.margin": 0.25, "loss": "Margin()", "loss.miner": "SemiHard()"})
    loss = build(config.loss, Loss, classes=3)
    assert type(loss).__name__ == "Margin"
    assert loss.margin == 0.25
    assert type(loss.miner).__name__ == "SemiHard"


LOSSES = [
    "Contrastive", "Triplet", "SupCon", "ProxyNCA", "Margin", "NormSoftmax", "CosFace", "ArcFace", "FastAP",
    "SNRContrastive", "MultiSimilarity", "SoftTriple", "ProxyAnchor",
]  # fmt: skip
LEVELS = "Hierarchical(loss=ProxyAnchor(), coarse=4, coarse_loss=ProxyNCA())"


@pytest.mark.parametrize("spec", [*(f"{name}()" for name in LOSSES), LEVELS])
def test_the_built_in_ranges_are_allowed_at_both_ends_and_mark_who_learns(spec):
    base = Train(data="glyphs", loss=spec)
    ranges = read_ranges(built_in(base.loss), base)
    for at in (0, 1):
        values = {r.name: round((r.low, r.high)[at]) if r.whole else (r.low, r.high)[at] for r in ranges}
        loss = build(apply_values(base, ranges, values).loss, Loss, classes=60, dim=4)
        assert torch.isfinite(loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))).all()
    assert ("loss_lr" in {r.name for r in ranges}) == bool(list(loss.parameters()))


def test_built_in_ranges_are_the_papers_in_our_units():
    assert built_in("ArcFace(scale=64)")["loss.margin"] == f"0..{math.radians(90)}"
    assert built_in("ArcFace()")["loss_lr"] == "1e-6..1 log"
    low, high = map(float, built_in("ProxyNCA()")["loss.scale"].split(".."))
    assert (low**2, high**2) == pytest.approx((0.01, 100))  # the paper's scale multiplies squared distances
    assert "loss.miner.eps" in built_in("MultiSimilarity()")
    assert "loss.miner.eps" not in built_in("MultiSimilarity(miner=None)")
    assert read_entries(["reality-check", "loss.margin=0..1", "lr=0..1"], "Triplet()") == {
        "loss.margin": "0..1",
        "lr": "0..1",
    }


def test_built_in_ranges_reach_the_loss_of_every_level():
    """What Yang et al. search: rate of the proxies, groups, interval, and scale and margin of each level."""
    names = set(built_in(LEVELS))
    assert names == {
        "loss_lr", "loss.coarse", "loss.every", "loss.loss.alpha", "loss.loss.margin", "loss.coarse_loss.scale",
    }  # fmt: skip
    shared, known = (built_in(f"Hierarchical(loss=ProxyNCA(){more})") for more in ("", ", depth=1"))
    assert set(shared) == {"loss_lr", "loss.coarse", "loss.every", "loss.loss.scale"}
    assert set(known) == {"loss_lr", "loss.loss.scale"}  # groups of a tree are not clustered
    base = Train(data="glyphs", loss=LEVELS)
    ranges = read_ranges(built_in(LEVELS), base)
    values = {
        "loss_lr": 0.01, "loss.coarse": 7, "loss.every": 30, "loss.loss.alpha": 5.0, "loss.loss.margin": 0.25,
        "loss.coarse_loss.scale": 2.0,
    }  # fmt: skip
    config = apply_values(base, ranges, values)
    loss = build(config.loss, Loss, classes=60, dim=4)
    assert (loss.loss.alpha, loss.loss.margin, loss.coarse_loss.scale) == (5.0, 0.25, 2.0)
    assert (loss.plan[0].size, loss.every, loss.plan[0].loss.scale, config.loss_lr) == (7, 30, 2.0, 0.01)
    with pytest.raises(LikewiseError, match="no ranges for Quadruplet"):
        built_in("Hierarchical(loss=Quadruplet())")


def test_ranges_of_a_file_override_the_built_in_ones_and_arguments_override_both():
    entries = read_entries(["reality-check", "loss.every=5..9"], LEVELS, {"loss.coarse": "2..8", "loss.every": "1..2"})
    assert (entries["loss.coarse"], entries["loss.every"], entries["loss.loss.margin"]) == ("2..8", "5..9", "0..1")


def test_losses_without_a_counterpart_are_named():
    with pytest.raises(LikewiseError, match="no ranges for SNR; .* Contrastive, Triplet"):
        built_in("SNR()")
    known = {name for name in find("losses") if name in LOSSES}
    assert known == set(LOSSES)
    assert "miner=HardPairs()" in usage(find("losses")["MultiSimilarity"])
