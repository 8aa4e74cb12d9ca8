"""What is searched: settings of a run, folds, and what is refused."""

import pytest
from likewise.config import Train, Tune
from likewise.errors import LikewiseError

from likewise.learn.training.fit import train
from likewise.papers import tune as tune_files
from likewise.papers.tune import tune
from likewise.runs.folder import Run

pytest.importorskip("optuna")


def runs_in(folder):
    return [Run(path) for path in sorted((folder / "runs").iterdir())]


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
    monkeypatch.setattr(tune_files, "draw_search", lambda file, *_: file.touch())
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
