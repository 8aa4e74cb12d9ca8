"""Other data to score a run on: what trained is left out, by content, and counted; nothing is written into the run."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from likewise.config import Train
from likewise.types import Items, LikewiseError
from score.by_hand import NAMES, assert_scores, by_hand, score

import likewise
from likewise.cli import main as cli
from likewise.data import load
from likewise.learn.training.fit import train
from likewise.runs.open import OpenRun
from likewise.runs.scores import read_per_query
from likewise.runs.training_files import TRAINED_FILE
from likewise.score.evaluate import (
    chosen_rows,
    describe_left_out,
    load_other,
    trained_samples,
    without_trained,
)


def save(file, items, rows, y=None, **columns):
    np.savez(file, x=items.x[rows], label=(items.y if y is None else y)[rows], **columns)
    return str(file)


def embeddings(run):
    with np.load(run.path / "embeddings.npz") as saved:
        return saved["x"], saved["row"]


def test_old_runs_are_scored_by_new_labels(run, features, tmp_path):
    items = load(features)
    y = items.y.copy()
    y[150:160] = 20  # ten test rows of class 12 are of class 20 after all
    z, row = embeddings(run)
    before = (run.path / "scores.json").read_text()
    data = save(tmp_path / "corrected.npz", items, np.arange(288), y)
    result = score(run.path, data=data, out=str(tmp_path / "new.json"), per_query=str(tmp_path / "new.parquet"))
    assert_scores(result, by_hand(z, y[row])[0])
    assert result["left_out"] == 144 and result["data"] == data and result["rows"] == 144
    assert "144 of 288 feature vectors are left out" in result["leaks"]
    assert (run.path / "scores.json").read_text() == before
    assert json.loads((tmp_path / "new.json").read_text()) == result
    assert read_per_query(tmp_path / "new.parquet", "test").row.tolist() == row.tolist()
    assert likewise.evaluate(run, data=data, metrics=NAMES, device="cpu", quiet=True) == result


def test_its_test_split_is_scored_without_rows_that_trained(run, features, tmp_path):
    items, rows = load(features), np.arange(100, 288)
    split = np.where(np.arange(100, 288) < 250, "test", "train")  # 44 of the test rows trained
    data = save(tmp_path / "own.npz", items, rows, split=split)
    result = score(run.path, data=data)
    z, row = embeddings(run)
    kept = row < 250
    assert_scores(result, by_hand(z[kept], items.y[row[kept]])[0])
    assert result["left_out"] == 44 and result["rows"] == 106


def test_what_cannot_be_scored_is_named(run, features, finished_pictures, tmp_path):
    items = load(features)
    data = save(tmp_path / "trained.npz", items, np.arange(100))
    with pytest.raises(LikewiseError, match=r"trained on all 100 .*nothing is left"):
        score(run.path, data=data)
    with pytest.raises(LikewiseError, match="images, but .* features of 16 numbers"):
        score(finished_pictures.path, data=data)
    with pytest.raises(LikewiseError, match="must end in .json"):
        score(run.path, out="scores.txt")
    with pytest.raises(LikewiseError, match="has per-query of its own"):
        score(run.path, per_query=str(tmp_path / "q.parquet"))


def test_a_run_without_a_test_split_is_scored_on_new_data(settings, features, tmp_path):
    items = load(features)
    own = save(tmp_path / "own.npz", items, np.arange(144))
    run = train(Train(**settings | {"data": own, "protocol": "UnseenClasses(train=1)", "steps": 5}), lambda line: None)
    result = score(run.path, data=features)
    assert result["left_out"] == 144 and result["rows"] == 144 and result["queries"] == 144
    with pytest.raises(LikewiseError, match="samples that did not train: --data DATA"):
        score(run.path)


def test_pictures_that_were_moved_to_other_classes_are_found_by_content(picture_run, pictures, tmp_path, capsys):
    """The folder was corrected in place, so that the data of the run does not exist any more."""
    folder = tmp_path / "corrected"
    rows = []
    for c in range(6):
        for i in range(6):
            label = (c + 1) % 6 if i == 0 else c  # one picture of every class belongs to the next class
            file = folder / f"{label} färg" / f"{c}-{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((pictures / f"{c} färg" / f"bild {i}.png").read_bytes())
            rows.append((str(file), f"{label} färg"))
    result = score(picture_run.path, data=str(folder), workers=0)
    assert result["left_out"] == 18 and result["rows"] == 17
    assert result["leaks"].endswith("; 1 more of a class that trained is left out, too (0 färg)")
    with (tmp_path / "table.csv").open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([("path", "label"), *rows])
    table = score(picture_run.path, data=str(tmp_path / "table.csv"), workers=0)
    assert table["metrics"] == pytest.approx(result["metrics"])
    words = ["--metrics", "R@1", "--device", "cpu", "--workers", "0"]
    cli.main(["evaluate", str(picture_run.path), "--data", str(tmp_path / "table.csv"), *words])
    out = capsys.readouterr().out
    assert "18 of 36 images are left out, because the run trained on them" in out and "test split of other data" in out
    assert "not stored; the run keeps the scores of its own data (--out FILE.json stores these)" in out


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
    with pytest.raises(LikewiseError, match="no `split` column, so no val split"):
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
    with pytest.raises(LikewiseError, match=r"no trained.npz, .*restore its data"):
        trained_samples(opened(run))


def test_the_runs_own_data_at_a_new_place_is_no_other_data(run, features, tmp_path):
    items = load(features)
    np.savez(tmp_path / "moved.npz", x=items.x, label=items.y)
    one = opened(run, data=str(tmp_path / "moved.npz"))
    assert load_other(one, None) is None and len(one.items) == 288
    np.savez(tmp_path / "less.npz", x=items.x[100:], label=items.y[100:])
    assert len(load_other(opened(run, data=str(tmp_path / "less.npz")), None)) == 188
