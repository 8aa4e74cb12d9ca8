"""Fold models from training to one score: trained on the small features, joined by hand, and refused where they do not fit."""

import json
import shutil

import numpy as np
import pytest
import torch
from likewise.config import Train
from likewise.types import LikewiseError
from score.by_hand import by_hand

from likewise.core.settings.spec import build
from likewise.learn.training.defaults import fold_specs
from likewise.learn.training.fit import train
from likewise.runs.folder import Run
from likewise.score.folds import score_folds

CPU = torch.device("cpu")
METRICS = ("R@1", "MAP@R")


def scores_by_hand(x, y):
    found = by_hand(x, y)[0]
    return {name: found[name] for name in METRICS}


@pytest.fixture(scope="module")
def trained(features, tmp_path_factory):
    """Three fold models of a second each, the last of them not evaluated yet."""
    folder = tmp_path_factory.mktemp("folds")
    made = []
    for fold, protocol in enumerate(fold_specs("ClassFolds(folds=3)")):
        made.append(train(Train(
            data=features, out=str(folder / str(fold)), dim=6, steps=30, lr=3e-3, quiet=True, device="cpu",
            sampler="SamplesPerClass(batch=16, per_class=4)", protocol=protocol, validate_every="10", metrics=METRICS,
            evaluate=fold < 2,
        )))  # fmt: skip
    return made


@pytest.fixture
def runs(trained, tmp_path):
    return [Run(shutil.copytree(run.path, tmp_path / run.path.name)) for run in trained]


def change(run, **settings):
    about = run.about
    about["config"] |= settings
    run.write_json("config.json", about)
    return run


def test_scores_apart_and_together_by_hand(runs):
    assert runs[2].scores is None
    got = score_folds([runs[1], runs[2], runs[0]], METRICS, device=CPU, quiet=True)
    saved = [np.load(run.path / "embeddings.npz") for run in runs]
    y = saved[0]["label"]
    assert len(y) == 144 and set(y) == set(range(12, 24))
    each = [scores_by_hand(one["x"], y) for one in saved]
    apart, joined = got["separated"], got["concatenated"]
    for name in METRICS:
        assert apart["folds"][name] == pytest.approx([one[name] for one in each], abs=1e-9)
        assert apart["metrics"][name] == pytest.approx(sum(one[name] for one in each) / 3, abs=1e-9)
    unit = np.concatenate([one["x"] / np.linalg.norm(one["x"], axis=1, keepdims=True) for one in saved], 1)
    assert joined["metrics"] == pytest.approx(scores_by_hand(unit, y), abs=1e-9)
    assert (apart["dim"], joined["dim"]) == (6, 18)
    assert apart["queries"] == joined["queries"] == 144 and apart["similarity"] == joined["similarity"] == "cosine"
    assert len({one["MAP@R"] for one in each}) == 3  # three different models, indeed
    json.dumps(got)


def test_metrics_that_were_not_asked_for_before(runs):
    got = score_folds(runs, ["RP", "R@1", "rho"], device=CPU, quiet=True)
    assert list(got["separated"]["metrics"]) == list(got["concatenated"]["metrics"]) == ["RP", "R@1", "rho"]
    known = [run.scores["metrics"]["R@1"] for run in runs]
    assert got["separated"]["metrics"]["R@1"] == pytest.approx(np.mean(known))


def test_embeddings_of_other_lengths_count_alike_when_joined(runs):
    """What a loss on raw embeddings leaves behind is brought to unit length first, as in the paper."""
    want = score_folds(runs, METRICS, device=CPU, quiet=True)["concatenated"]["metrics"]
    for run, factor in zip(runs, (1.0, 50.0, 0.01)):
        with np.load(run.path / "embeddings.npz") as content:
            columns = dict(content)
        scale = factor * np.random.default_rng(0).uniform(0.5, 2, (144, 1)).astype(np.float32)
        np.savez(run.path / "embeddings.npz", **columns | {"x": columns["x"] * scale})
        run.write_json("scores.json", run.scores | {"similarity": "euclidean", "metrics": {}})
    got = score_folds(runs, METRICS, device=CPU, quiet=True)
    assert got["concatenated"]["metrics"] == pytest.approx(want, abs=1e-6)
    assert got["separated"]["similarity"] == "euclidean"


def test_runs_that_do_not_belong_together(runs, finished):
    score = lambda *chosen: score_folds(chosen, METRICS, device=CPU, quiet=True)  # noqa: E731
    with pytest.raises(LikewiseError, match="all folds must be given, got none"):
        score()
    with pytest.raises(LikewiseError, match=r"all 3 folds .* fold 1, 2 is missing"):
        score(runs[0])
    with pytest.raises(LikewiseError, match=r"ClassFolds, but .* has UnseenClasses"):
        score(*runs, finished)
    with pytest.raises(LikewiseError, match=r"once, but .* are both fold 1"):
        score(*runs, runs[1])
    other = change(Run(shutil.copytree(runs[2].path, runs[2].path.parent / "other")), lr=0.5)
    with pytest.raises(LikewiseError, match=r"differ in lr: 0.003 and 0.5"):
        score(runs[0], runs[1], other)
    change(other, lr=0.003, protocol="ClassFolds(folds=4, fold=2, own_split=False)")
    with pytest.raises(LikewiseError, match=r"differ in protocol: ClassFolds\(folds=3\) and ClassFolds\(\)"):
        score(runs[0], runs[1], other)
    (runs[1].path / "done").unlink()
    with pytest.raises(LikewiseError, match=r"is not finished; .* resume it"):
        score(*runs)


def test_data_or_embeddings_that_changed(runs, features, tmp_path):
    with np.load(features) as content:
        columns = dict(content)
    columns["label"] = np.roll(columns["label"], 1)
    np.savez(tmp_path / "moved.npz", **columns)
    with pytest.raises(LikewiseError, match="must be the data that .* was trained with"):
        score_folds([change(run, data=str(tmp_path / "moved.npz")) for run in runs], METRICS, device=CPU, quiet=True)
    for run in runs:
        change(run, data=features)
    with np.load(runs[0].path / "embeddings.npz") as content:
        columns = {name: value[1:] if value.ndim else value for name, value in content.items()}
    np.savez(runs[0].path / "embeddings.npz", **columns)
    with pytest.raises(LikewiseError, match="144 test rows .* got 143 rows; delete it"):
        score_folds(runs, METRICS, device=CPU, quiet=True)
    runs[0].write_json("config.json", runs[0].about | {"data": "0" * 64})
    with pytest.raises(LikewiseError, match="differ in the data; give"):
        score_folds(runs, METRICS, device=CPU, quiet=True)


def test_folds_see_other_classes_and_the_best_on_validation_is_kept(trained):
    parts = [build(run.about["config"]["protocol"]) for run in trained]
    assert [part.fold for part in parts] == [0, 1, 2]
    assert len({run.about["identity"] for run in trained}) == 3
    for run in trained:
        assert (run.path / "best.safetensors").exists()
        assert sum("val MAP@R" in line for line in run.read_log()) == 3
