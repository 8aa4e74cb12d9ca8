"""Other data to score a run on: what trained is left out, by content, and counted."""

import dataclasses
import json

import numpy as np
import pytest
from likewise.types import Items, LikewiseError

from likewise.data import load
from likewise.runs.open import OpenRun
from likewise.runs.training_files import TRAINED_FILE
from likewise.score.evaluate import (
    chosen_rows,
    describe_left_out,
    load_other,
    trained_samples,
    without_trained,
)


def opened(run, **place):
    return OpenRun(run, device="cpu", quiet=True, say=lambda line: None, **place)


def test_rows_that_trained_are_left_out_wherever_they_stand(run, features):
    items = load(features)  # classes 0 to 11 trained
    order = np.random.default_rng(0).permutation(288)
    mixed = dataclasses.replace(items, x=items.x[order], y=items.y[order])
    data = without_trained(mixed, "mixed.npz", [opened(run)])
    assert (data.rows, data.trained, data.left_out, data.classes) == (288, (144,), 144, ())
    assert ((data.items.split == "test") == (order >= 144)).all()
    assert describe_left_out(data) == (
        "144 of 288 feature vectors are left out, because the run trained on them (train or val)"
    )
    fresh = dataclasses.replace(mixed, x=mixed.x + 1)
    data = without_trained(fresh, "fresh.npz", [opened(run)])
    assert data.left_out == 0 and data.classes == tuple(str(c) for c in range(12))
    assert describe_left_out(data) == (
        "the run trained on none of these 288 feature vectors; 12 classes of the others were in training too (0, 1, 2, ...)"
    )


def test_few_samples_of_classes_that_trained_are_left_out_too(run, features):
    """A relabelled sample must not make a class of its own in the interval."""
    items = load(features)  # classes 0 to 11 trained, 12 samples each; 12 to 23 did not
    y = items.y.copy()
    moved = np.flatnonzero(y == 20)[:2]
    y[moved] = 3  # two samples that did not train are now of a class that trained
    data = without_trained(dataclasses.replace(items, y=y), "x.npz", [OpenRun(run)])
    assert (data.left_out, data.remainder, data.classes) == (144, 2, ("3",))
    assert (data.items.split == "test").sum() == 142 and (data.items.split[moved] == "").all()
    assert describe_left_out(data).endswith("; 2 more of a class that trained are left out, too (3)")


def test_what_either_of_two_runs_trained_on_is_left_out(run, features, finished_pictures):
    items = load(features)
    one = opened(run)
    other = opened(run)
    other.run = finished_pictures  # its samples are images: none of these rows
    data = without_trained(items, "x", [one, other])
    assert data.trained == (144, 0) and data.left_out == 144


def test_the_splits_of_the_data_are_used():
    y, x = np.zeros(6, int), np.eye(6, dtype=np.float32)
    split = np.array(["test", "train", "val", "test", "", "test"])
    junk = np.array([False] * 5 + [True])
    plain = Items("toy", y, ("a",), x=x)
    assert chosen_rows(plain, "test").all()
    assert chosen_rows(dataclasses.replace(plain, junk=junk), "test").tolist() == [True] * 5 + [False]
    own = dataclasses.replace(plain, split=split, junk=junk)
    assert np.flatnonzero(chosen_rows(own, "test")).tolist() == [0, 3]
    assert np.flatnonzero(chosen_rows(own, "val")).tolist() == [2]
    assert chosen_rows(dataclasses.replace(plain, split=np.full(6, "")), "test").all()  # an empty column is none
    with pytest.raises(LikewiseError, match="'toy' has no `split` column, so no val split"):
        chosen_rows(plain, "val")
    with pytest.raises(LikewiseError, match="the test split of 'toy' is empty"):
        chosen_rows(dataclasses.replace(plain, split=np.full(6, "train")), "test")


def test_an_older_run_is_asked_for_its_data(run, features, tmp_path):
    want = trained_samples(opened(run))
    (run.path / TRAINED_FILE).unlink()
    found = trained_samples(opened(run))
    assert np.array_equal(found.key, want.key) and found.class_name == want.class_name
    about = json.loads((run.path / "config.json").read_text())
    about["config"]["data"] = str(tmp_path / "gone.npz")
    (run.path / "config.json").write_text(json.dumps(about))
    with pytest.raises(LikewiseError, match=r"has no trained.npz, and its own data cannot be read .*restore its data"):
        trained_samples(opened(run))


def test_the_runs_own_data_at_a_new_place_is_no_other_data(run, features, tmp_path):
    items = load(features)
    np.savez(tmp_path / "moved.npz", x=items.x, label=items.y)
    one = opened(run, data=str(tmp_path / "moved.npz"))
    assert load_other(one, None) is None and len(one.items) == 288
    np.savez(tmp_path / "less.npz", x=items.x[100:], label=items.y[100:])
    assert len(load_other(opened(run, data=str(tmp_path / "less.npz")), None)) == 188
