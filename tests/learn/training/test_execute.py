"""A training in its folder: one owner, nothing of another run, nothing left of a state on the way."""

from pathlib import Path

import numpy as np
import pytest
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks


def test_another_runs_folder_is_refused(settings, tmp_path):
    train(Train(**settings | {"steps": 2, "evaluate": False}))
    with pytest.raises(LikewiseError, match="holds another run .lr: 0.003 there, 0.01 here.*another --out"):
        train(Train(**settings | {"steps": 2, "lr": 0.01}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(LikewiseError, match="exists and is not a run"):
        train(Train(**settings | {"out": str(tmp_path / "mine")}))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_two_cannot_train_in_one_folder(settings):
    run = train(Train(**settings | {"steps": 2, "evaluate": False}))
    (run.path / "done").unlink()
    with run.owned(), pytest.raises(LikewiseError, match="another process is training in"):
        train(Train(**settings | {"steps": 2}))


def test_scores_of_a_state_on_the_way_never_pass_for_the_final_ones(settings):
    """Somebody evaluates while training runs: the finished run shows the finished network's scores."""
    from likewise import evaluate

    def look(state):
        if state.step == 11:
            evaluate(settings["out"], quiet=True, device="cpu")

    run = train(Train(**settings | {"steps": 80, "lr": 0.02}), hooks=Hooks(after_step=look))
    assert run.scores == evaluate(run, quiet=True, device="cpu")


def test_again_removes_what_a_run_writes_and_nothing_else(settings):
    run = train(Train(**settings | {"steps": 2}))
    (run.path / "notes").mkdir()
    (run.path / "notes" / "mine.txt").write_text("keep")
    (run.path / "z.npz").write_text("keep")
    train(Train(**settings | {"steps": 2, "restart": True}))
    assert (run.path / "notes" / "mine.txt").read_text() == (run.path / "z.npz").read_text() == "keep"


def test_a_folder_left_at_the_very_start_is_no_obstacle(settings):
    folder = Path(settings["out"])
    folder.mkdir()
    (folder / "environment.json").write_text("{}")
    assert train(Train(**settings | {"steps": 1, "evaluate": False})).done


def test_classes_with_one_sample_are_said_to_be_left_out(settings, tmp_path):
    rng = np.random.default_rng(0)
    y = np.asarray([0] * 4 + [1] * 4 + [2] + [3] * 4 + [4] * 4 + [5] * 4)  # the first half trains
    np.savez(tmp_path / "few.npz", x=rng.normal(size=(21, 4)).astype(np.float32), label=y)
    settings |= {"data": str(tmp_path / "few.npz"), "steps": 2, "metrics": ("R@1",)}
    said = []
    train(Train(**settings | {"sampler": None}), said.append)
    assert said == ["training skips 1 of 3 classes, because they have one sample only: '2'"]
    with pytest.raises(LikewiseError, match="lonely"):
        train(Train(**settings | {"sampler": "SamplesPerClass(batch=8, per_class=4)", "out": str(tmp_path / "other")}))


def test_sets_of_labels_with_one_sample_train(settings, tmp_path):
    """Their labels are shared by others, so the default sampler of several labels draws them, and nothing is said."""
    rng = np.random.default_rng(0)
    labels = ["a|b", "a|c", "b|c", "a|b|c"] * 5 + ["a|b|d", "c|d"]
    split = ["train"] * 16 + ["test"] * 4 + ["train"] * 2
    np.savez(tmp_path / "sets.npz", x=rng.normal(size=(22, 4)).astype(np.float32), labels=labels, split=split)
    settings |= {"data": str(tmp_path / "sets.npz"), "steps": 2, "metrics": ("NDCG@3",), "sampler": None}
    said = []
    assert train(Train(**settings), said.append).done and not [line for line in said if "skips" in line]
