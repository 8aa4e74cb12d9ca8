"""What a network was before training: asked once, kept beside the scores, and a plain line where training made it worse."""

import re

import numpy as np
import pytest
from likewise.config import Compare, Evaluate, Train
from likewise.types import LikewiseError
from safetensors.torch import save_file

from likewise.cli.commands import run as run_command
from likewise.learn.training.fit import train
from likewise.models.backbones import ConvSmall
from likewise.score import baseline as gain
from likewise.score.baseline import WORSE_HINT, about_baseline, add_baseline, worse_than_baseline
from likewise.score.compare import compare
from likewise.score.evaluate import evaluate


@pytest.fixture
def began(pictures, small, tmp_path):
    """Settings of a training that starts from somebody's weights and forgets them at once."""
    save_file(ConvSmall().state_dict(), tmp_path / "theirs.safetensors")
    return small | {
        "data": str(pictures), "out": str(tmp_path / "run"), "weights": str(tmp_path / "theirs.safetensors"), "lr": 0.3,
        "steps": 5, "metrics": ("R@1", "MAP@R"),
    }  # fmt: skip


def test_it_is_the_untrained_network_and_asked_once(began, tmp_path, monkeypatch):
    run = train(Train(**began))
    assert "before" not in run.scores  # others who train do not pay for it
    scores = add_baseline(run, Train(**began))
    untrained = evaluate(Evaluate(target=str(run.path), checkpoint="untrained", metrics=("R@1", "MAP@R"), quiet=True))
    assert scores["before"]["metrics"] == untrained["metrics"] and scores["before"]["interval"] == untrained["interval"]
    monkeypatch.setattr(gain, "score_before", None)  # not called any more: evaluating again, or training it, keeps it
    evaluate(Evaluate(target=str(run.path), metrics=("R@1", "MAP@R"), quiet=True))
    assert add_baseline(train(Train(**began), lambda line: None), Train(**began)) == run.scores == scores


def test_the_change_is_that_of_a_comparison(began, tmp_path):
    run = train(Train(**began))
    scores = add_baseline(run, Train(**began))
    for checkpoint, name in (("untrained", "a"), ("best", "b")):
        from likewise import embed

        file = str(tmp_path / f"{name}.npz")
        embed(run, began["data"], out=file, checkpoint=checkpoint, quiet=True, device="cpu")
        with np.load(file) as all_rows:
            x, y = all_rows["x"][18:], all_rows["label"][18:]
        np.savez(file, x=x, label=y)
        evaluate(Evaluate(target=file, per_query=str(tmp_path / f"{name}.parquet"), quiet=True))
    said = compare(Compare(str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")))["metrics"]["MAP@R"]
    assert scores["before"]["change"]["metric"] == "MAP@R" and scores["before"]["change"]["over"] == "queries"
    for end in ("low", "high"):
        assert scores["before"]["change"][end] == pytest.approx(said["over_queries"][end], abs=1e-9)


def test_only_who_began_with_weights_and_trained_is_asked(finished, began):
    config = Train(data=finished.about["config"]["data"])
    assert add_baseline(finished, config) == finished.scores and "before" not in finished.scores
    assert "before" not in add_baseline(train(Train(**began | {"steps": 0})), Train(**began))


def test_a_head_of_no_weights_needs_no_sentence():
    config = {"head": "Linear()"}
    assert about_baseline({"before": {}}, config).startswith("before training: ") and about_baseline({}, config) == ""
    assert about_baseline({"before": {}}, {"head": "Identity()"}) == ""


def test_a_loss_is_said_where_the_interval_is_sure():
    def say(low, high):
        change = {"metric": "MAP@R", "low": low, "high": high, "over": "classes"}
        return worse_than_baseline(
            {"metrics": {"MAP@R": 0.294}, "before": {"metrics": {"MAP@R": 0.468}, "change": change}}
        )

    assert say(-0.25, -0.1) == (
        "training made it worse: MAP@R 46.8 % -> 29.4 % (by 10.0 to 25.0 points, 95 % interval over classes);\n"
        + WORSE_HINT
    )
    assert say(-0.2, 0.01) == say(0.1, 0.2) == say(np.nan, np.nan) == worse_than_baseline({"metrics": {}}) == ""


def test_the_command_shows_both_and_says_what_it_cannot_know(began, capsys, monkeypatch):
    run_command("train", Train(**began | {"quiet": False}))
    told = capsys.readouterr().out
    assert re.search(r"before training.*after training", told)
    assert "before training: the backbone as it was loaded, and a head Linear() with random weights" in told
    (train(Train(**began), lambda line: None).path / "scores.json").unlink()

    def gone(*_):
        raise LikewiseError("no hub")

    monkeypatch.setattr(gain, "score_before", gone)
    run_command("train", Train(**began | {"quiet": False}))
    told = capsys.readouterr().out
    assert "the baseline (scores before training) cannot be computed: no hub" in told and "test split" in told
