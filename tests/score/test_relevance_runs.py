"""Runs with a relevance: training selects and scores by it, files say which it was, and comparisons do not mix two of them."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from likewise.config import Compare, Evaluate, Train
from likewise.types import LikewiseError

from likewise.learn.training.fit import train
from likewise.runs.scores import PerQuery, read_per_query
from likewise.score.compare import compare
from likewise.score.evaluate import evaluate
from likewise.score.score_table import show_scores

READER = """
import numpy as np
from likewise.types import Items

def several(root=None):
    rng = np.random.default_rng(0)
    sets = tuple((a, b) for a in range(6) for b in range(6, 10))
    y = np.repeat(np.arange(24), 12)
    x = np.stack([rng.normal(size=(10, 6))[list(one)].sum(0) for one in sets])[y] + rng.normal(size=(288, 6))
    split = np.where(np.arange(288) % 3 == 0, "test", np.where(np.arange(288) % 3 == 1, "train", "val"))
    names = tuple(f"l{c}" for c in range(10))
    return Items("several", y, tuple(f"l{a}|l{b}" for a, b in sets), x=x.astype(np.float32), split=split, label_name=names,
                 label_sets=sets)
"""


@pytest.fixture(scope="module")
def tree_data(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(24), 8)
    x = (rng.normal(size=(24, 6))[y] + rng.normal(size=(6, 6))[y // 4] + rng.normal(size=(192, 6))).astype(np.float32)
    file = tmp_path_factory.mktemp("tree") / "tree.npz"
    np.savez(file, x=x, label=y, coarse=np.array([f"g{c // 4}" for c in y]))
    return str(file)


@pytest.fixture(scope="module")
def runs(tree_data, tmp_path_factory):
    """A flat run and one with the tree as relevance, on the same data."""
    folder = tmp_path_factory.mktemp("runs")
    how = {"data": tree_data, "steps": 20, "dim": 6, "sampler": "SamplesPerClass(batch=24, per_class=4)", "quiet": True}
    how |= {"device": "cpu", "protocol": "UnseenClasses(train=0.5, val=0.25)"}
    return [
        train(Train(out=str(folder / name), relevance=r, **how))
        for name, r in (("flat", None), ("tree", "TreeDepth()"))
    ]


def test_scores_say_what_was_relevant(runs):
    flat, tree = runs
    assert "relevance" not in flat.scores and list(flat.scores["metrics"]) == ["R@1", "R@10", "RP", "MAP@R"]
    assert list(tree.scores["metrics"]) == ["R@1", "R@10", "RP", "MAP@R", "NDCG@10"]
    assert (
        tree.scores["relevance"]["spec"].startswith("TreeDepth(")
        and tree.scores["relevance"]["relevant"] == "same class"
    )
    assert read_per_query(tree.path / "per_query.parquet", "compare").relevance == tree.scores["relevance"]
    assert read_per_query(flat.path / "per_query.parquet", "compare").relevance is None


def test_comparisons_do_not_mix_two_relevances(runs, tmp_path):
    flat, tree = (str(run.path) for run in runs)
    result = compare(Compare(flat, tree))
    assert list(result["metrics"]) == ["R@1", "R@10", "RP", "MAP@R"]  # the same rows are relevant in both
    how = {"quiet": True, "device": "cpu", "relevance": "TreeDepth()"}
    before = (runs[0].path / "scores.json").read_bytes()
    files = []
    for name, target in (("a", flat), ("b", tree)):
        files.append(str(tmp_path / f"{name}.parquet"))
        scores = evaluate(Evaluate(target, metrics=("R@1", "NDCG@10"), per_query=files[-1], **how))
        assert scores["relevance"]["spec"].startswith("TreeDepth(")
    assert (runs[0].path / "scores.json").read_bytes() == before  # another relevance is not stored
    assert set(compare(Compare(*files))["metrics"]) == {"R@1", "NDCG@10"}
    with pytest.raises(LikewiseError, match="NDCG@10 depends on it"):
        plain = str(tmp_path / "plain.parquet")
        evaluate(
            Evaluate(flat, metrics=("R@1", "NDCG@10"), per_query=plain, **how | {"relevance": "TreeDepth(power=2)"})
        )
        compare(Compare(plain, files[1], metrics=("NDCG@10",)))
    low = str(tmp_path / "low.parquet")
    evaluate(Evaluate(flat, metrics=("R@1",), per_query=low, **how | {"relevance": "TreeDepth(threshold=0.5)"}))
    with pytest.raises(LikewiseError, match="same relevance, but A has TreeDepth.* B has none"):
        compare(Compare(low, flat))


def test_runs_on_other_data_are_scored_with_one_relevance(monkeypatch):
    """--on scores each run by its own relevance, so two that mean other rows are refused as without --on."""
    from likewise.score import compare as module

    no, none = np.zeros(0, int), np.zeros(0)
    tree = {"relevant": "relevance of 0.5 or more", "spec": "TreeDepth(threshold=0.5)"}
    side = PerQuery(no, no, no.astype(str), no, {"R@1": none}, no.reshape(0, 1), none.reshape(0, 1))
    sides = [(side, {}), (dataclasses.replace(side, relevance=tree), {})]
    monkeypatch.setattr(module, "score_sides", lambda config, say: (sides, {}))
    with pytest.raises(LikewiseError, match=r"A has none \(equal labels\) and B has TreeDepth"):
        compare(Compare("a", "b", on="data"))


def test_metrics_of_another_relevance_are_not_kept(runs):
    """Scores of an earlier evaluation stay beside new ones only if the same rows were relevant by the same values."""
    tree = runs[1]
    evaluate(Evaluate(str(tree.path), metrics=("graded-mAP",), quiet=True, device="cpu"))
    stored = json.loads((tree.path / "scores.json").read_text())
    assert list(stored["metrics"]) == ["R@1", "R@10", "RP", "MAP@R", "NDCG@10", "graded-mAP"]
    assert stored["relevance"]["spec"].startswith("TreeDepth(")


def test_several_labels_from_training_to_comparison(tmp_path, monkeypatch, capsys):
    (tmp_path / "several_labels_reader.py").write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    how = {
        "data": "several_labels_reader.several()",
        "allow_imports": True,
        "steps": 20,
        "dim": 4,
        "quiet": True,
        "device": "cpu",
    }
    how |= {"sampler": "SamplesPerClass(batch=24, per_class=2)", "protocol": "SeenClasses(test=0.3, val=0.2)"}
    sides = [train(Train(out=str(tmp_path / str(seed)), seed=seed, **how)) for seed in (0, 1)]
    sys.modules.pop("several_labels_reader")
    scores = sides[0].scores
    assert scores["relevance"]["relevant"] == "any label shared" and scores["interval_over"] == "label sets"
    assert scores["labels"]["count"] == 10 and set(scores["labels"]["mean"]) == {"R@1", "R@10"}
    assert any("val MAP@R" in line for line in sides[0].read_log())
    assert set(compare(Compare(*(str(run.path) for run in sides)))["metrics"]) == {
        "R@1",
        "R@10",
        "RP",
        "MAP@R",
        "NDCG@10",
    }
    show_scores({"best": scores})
    printed = capsys.readouterr().out
    assert "relevance: SharedLabels(measure='jaccard'); relevant: any label shared" in printed
    assert "mean over labels" in printed
    assert "they hold for other sets of the same labels" in printed


@pytest.fixture
def judged_pairs(tmp_path):
    """Data with a train and a test split, and lines of judged pairs of samples of both."""
    rng = np.random.default_rng(0)
    split = np.repeat(["train", "test"], 20)
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(40, 4)).astype(np.float32), label=np.zeros(40, int), split=split)
    lines = [f"{a},{b},{int((a - b) % 2 == 0)}" for a in range(40) for b in range(a + 1, min(a + 6, 40))]
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b,same", *lines]))
    return lines


SHORT = {"steps": 2, "dim": 4, "device": "cpu", "quiet": True, "loss": "Contrastive()"}


def test_a_file_of_pairs_may_name_samples_of_all_splits(judged_pairs, tmp_path, monkeypatch):
    """Training uses the lines between its samples, evaluation those between test samples, also from another folder."""
    monkeypatch.chdir(tmp_path)
    before = train(Train(data="x.npz", relevance="JudgedPairs(file='pairs.csv')", out="run", **SHORT)).scores
    assert before["queries"] == 20
    monkeypatch.chdir("/")
    again = evaluate(Evaluate(target=str(tmp_path / "run"), quiet=True, device="cpu"))
    assert again["metrics"]["R@1"] == before["metrics"]["R@1"]


def test_a_file_of_pairs_that_changed_is_noticed(judged_pairs, tmp_path):
    """Its content is part of the run and of the scores: they do not mix with those of another content."""
    file, target = str(tmp_path / "pairs.csv"), str(tmp_path / "run")
    spec, said = f"JudgedPairs(file='{file}')", []
    settings = Train(data=str(tmp_path / "x.npz"), relevance=spec, out=target, **SHORT)
    run = train(settings)
    assert run.scores["relevance"]["files"] == run.about["relevance_files"] and list(run.about["relevance_files"]) == [
        file
    ]
    sides = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    how = {"quiet": True, "device": "cpu", "relevance": spec}
    evaluate(Evaluate(target=target, per_query=sides[0], **how), said.append)
    assert not any("changed" in line for line in said)
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b,same", *judged_pairs[1:]]))
    evaluate(Evaluate(target=target, per_query=sides[1], **how), said.append)
    assert any("this file has changed since then" in line and line.endswith(file) for line in said)
    with pytest.raises(LikewiseError, match="A has JudgedPairs.*SHA-256 of pairs.csv: .* B has"):
        compare(Compare(*sides))
    with pytest.raises(LikewiseError, match="must be empty or hold a run with the same settings"):
        train(settings)


def test_judged_triplets_select_by_their_agreement(tmp_path):
    """There is one class, by which every result would be right: neither the checkpoint nor the scores are those of classes."""
    rng = np.random.default_rng(0)
    split = np.repeat(["train", "val", "test"], 20)
    np.savez(tmp_path / "x.npz", x=rng.normal(size=(60, 4)).astype(np.float32), label=np.zeros(60, int), split=split)
    lines = [",".join(map(str, first + rng.permutation(20)[:3])) for first in (0, 20, 40) for _ in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["anchor,nearer,farther", *lines]))
    how = {"steps": 4, "validate_every": "2", "dim": 4, "device": "cpu", "quiet": True, "loss": "Triplet()"}
    spec = f"JudgedTriplets(file='{tmp_path / 't.csv'}')"
    run = train(Train(data=str(tmp_path / "x.npz"), relevance=spec, out=str(tmp_path / "run"), **how))
    assert list(run.scores["metrics"]) == ["triplet-agreement"]
    assert any("val triplet-agreement" in line for line in run.read_log())
    assert not any("val MAP@R" in line for line in run.read_log())
    files = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    for file in files:
        evaluate(Evaluate(str(run.path), relevance=spec, per_query=file, quiet=True, device="cpu"))
        (tmp_path / "t.csv").write_text("\n".join(["anchor,nearer,farther", *lines[1:-1]]))
    with pytest.raises(LikewiseError, match="same relevance, .*triplet-agreement depends"):
        compare(Compare(*files))
