"""tune: the objective by hand, what fails, what is pruned, what two processes share, and what is left behind."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("optuna")

from likewise.errors import LikewiseError

from likewise.cli import main as cli
from likewise.papers import tune as module
from likewise.papers import tune as trials
from likewise.papers.tune import tune
from likewise.runs.folder import Run


def runs_in(folder):
    return [Run(path) for path in sorted((folder / "runs").iterdir())]


def test_the_same_command_goes_on_and_trains_nothing_twice(search_config, monkeypatch):
    first = tune(search_config(trials=2))
    again = tune(search_config(trials=4))
    assert [t["values"] for t in again.about["trials"][:2]] == [t["values"] for t in first.about["trials"]]
    assert again.about["count"]["complete"] == 4
    monkeypatch.setattr(trials, "run_folds", None)  # nobody is there to train
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
    assert (out / "tune.png").stat().st_size > 10_000
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
