"""The network of a run on its own splits: what is written, how it merges with earlier scores, and a note about wrong labels."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from likewise.config import Evaluate, Train

from likewise.cli import main as cli
from likewise.learn.training.fit import train
from likewise.report.run_analysis import notes_of
from likewise.report.section import ReportTarget
from likewise.runs.embeddings import EMBEDDINGS_FILE, origin
from likewise.runs.open import OpenRun
from likewise.runs.scores import PER_QUERY, read_per_query, read_scores, write_scores
from likewise.score.evaluate import FEWER_CLASSES_REASON, evaluate, evaluate_run, mergeable, merged

SAID = "test labels look wrong, which lowers the scores; see `likewise audit {}`"


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A run on 24 well separated classes of 20 vectors, with 10 % of the test labels exchanged; and their number."""
    folder, rng = tmp_path_factory.mktemp("noisy"), np.random.default_rng(0)
    y = np.repeat(np.arange(24), 20)
    x = (rng.normal(size=(24, 16))[y] + 0.4 * rng.normal(size=(480, 16))).astype(np.float32)
    wrong = (y >= 12) & (rng.random(480) < 0.1)
    given = np.where(wrong, 12 + (y + rng.integers(1, 12, 480)) % 12, y)
    np.savez(folder / "toy.npz", x=x, label=given, split=np.where(y < 12, "train", "test"))
    run = train(Train(
        data=str(folder / "toy.npz"), out=str(folder / "run"), dim=12, steps=20, quiet=True, device="cpu",
        sampler="SamplesPerClass(batch=24, per_class=4)",
    ))  # fmt: skip
    return run, int((given != y).sum())


def test_wrong_test_labels_are_counted_in_the_scores_the_terminal_and_the_report(noisy, capsys):
    run, planted = noisy
    found = run.scores["wrong_labels"]
    assert found["of"] == 240 and 0.7 * planted <= found["count"] <= 1.4 * planted
    says = f"about {found['count']} of 240 {SAID.format(run.path)}"
    cli.main(["evaluate", str(run.path), "--device", "cpu"])
    assert says in capsys.readouterr().out
    assert any(line.startswith(says) for line in notes_of(ReportTarget("mine", run, scores=run.scores)))
    assert "wrong_labels" not in evaluate_run(
        OpenRun(run, device="cpu", quiet=True), Evaluate(str(run.path), metrics=("R@1",), split="train")
    )


def test_scores_from_before_training_are_kept(run):
    before = {"metrics": {"R@1": 0.5}}
    write_scores(run.path, run.scores | {"before": before})
    for name in (EMBEDDINGS_FILE, PER_QUERY):
        (run.path / name).unlink()
    result = evaluate_run(OpenRun(run, device="cpu", quiet=True), Evaluate(str(run.path), metrics=("R@1",)))
    assert read_scores(run.path) == result | {"before": before} and list(result["metrics"]) == ["R@1"]
    assert np.array_equal(read_per_query(run.path / PER_QUERY, "test").row, origin(run.path / EMBEDDINGS_FILE)["row"])


def scores(metrics, **more):
    known = {
        "metrics": metrics, "interval": {n: [v - 0.1, v + 0.1] for n, v in metrics.items()}, "no_interval": {},
        "interval_over": "classes", "class_mean": dict(metrics), "queries": 20, "unscored": 2, "rows": 22, "dim": 4,
        "similarity": "cosine", "checkpoint": "best", "split": "test",
    }  # fmt: skip
    return known | more


def test_metrics_that_were_not_computed_again_stay():
    old, new = scores({"R@1": 0.5, "R@10": 0.9, "NMI": 0.4}, note="old"), scores({"mAP": 0.3, "R@1": 0.6})
    found = merged(old, new, ["R@1", "R@10", "NMI"])
    assert found["metrics"] == {"R@1": 0.6, "R@10": 0.9, "NMI": 0.4, "mAP": 0.3}
    assert list(found["metrics"]) == ["R@1", "R@10", "NMI", "mAP"]
    assert found["interval"]["R@1"] == pytest.approx([0.5, 0.7])
    assert found["interval"]["R@10"] == pytest.approx([0.8, 1.0])
    assert found["class_mean"]["R@10"] == 0.9
    assert merged(old, new, ["R@10"])["metrics"].keys() == {"R@1", "R@10", "mAP"}  # NMI is not to be kept


def test_scores_of_something_else_are_dropped():
    new = scores({"mAP": 0.3})
    for more in ({"checkpoint": "last"}, {"split": "val"}, {"similarity": "euclidean"}, {"rows": 23}, {"dim": 8},
                 {"queries": 19}):  # fmt: skip
        old = scores({"R@10": 0.9}, **more)
        assert not mergeable(old, new) and merged(old, new, ["R@10"]) == new


def test_a_metric_of_few_queries_neither_sets_the_counts_nor_keeps_an_interval_over_other_units():
    old = scores({"R@1": 0.5})
    few = scores({"severity": 0.3}, queries=4, unscored=18, interval_over="queries")
    for found in (merged(old, few, ["R@1"]), merged(few, old, ["severity"])):
        assert (found["queries"], found["unscored"], found["interval_over"]) == (20, 2, "classes")
        assert found["interval"].keys() == {"R@1"} and found["no_interval"] == {"severity": FEWER_CLASSES_REASON}


def test_galleries_corrections_and_trees_are_merged():
    tree = {"levels": {"level1": 3}, "height": 2}
    old = scores(
        {"R@1": 0.5, "R@1:level1": 0.8}, galleries={"shop": scores({"R@1": 0.4})}, tree=tree,
        corrected={"source": "audit", "metrics": {"R@1": [0.6, 0.5, 0.7]}, "unknown": {}},
    )  # fmt: skip
    new = scores({"RP": 0.2}, galleries={"shop": scores({"RP": 0.1})})
    found = merged(old, new, ["R@1", "R@1:level1"])
    assert found["galleries"]["shop"]["metrics"] == {"R@1": 0.4, "RP": 0.1}
    assert found["tree"] == tree and found["corrected"]["metrics"] == {"R@1": [0.6, 0.5, 0.7]}
    other = new | {"tree": {"levels": {"level1": 5}, "height": 2}, "corrected": {"source": "Uniform(share=0.1)",
                   "metrics": {"RP": [0.3, 0.2, 0.4]}, "unknown": {}}}  # fmt: skip
    found = merged(old, other, ["R@1", "R@1:level1"])
    assert found["metrics"] == {"R@1": 0.5, "RP": 0.2}  # the level is of another tree
    assert found["corrected"] == other["corrected"] and found["tree"] == other["tree"]


def test_a_run_keeps_its_metrics_and_their_columns(run):
    def look(*metrics):
        return evaluate(Evaluate(target=str(run.path), metrics=metrics, quiet=True, device="cpu"))

    before = run.scores
    assert list(look("P@5", "NMI")["metrics"]) == ["P@5", "NMI"]
    assert run.scores["metrics"].keys() == {*before["metrics"], "P@5", "NMI"}
    assert {n: run.scores["metrics"][n] for n in before["metrics"]} == before["metrics"]
    assert run.scores["interval"].items() >= before["interval"].items()
    look("AUROC")  # of the whole set alone: added too
    assert run.scores["metrics"].keys() == {*before["metrics"], "P@5", "NMI", "AUROC"}
    assert {"R@1", "R@10", "RP", "MAP@R", "P@5"} <= set(pq.read_schema(run.path / "per_query.parquet").names)


def test_an_unfinished_run_keeps_none_because_its_network_changes(run):
    (run.path / "done").unlink()
    found = evaluate(Evaluate(target=str(run.path), metrics=("P@5",), quiet=True, device="cpu"), lambda line: None)
    assert json.loads((run.path / "scores.json").read_text()) == found and list(found["metrics"]) == ["P@5"]
    names = pq.read_schema(run.path / "per_query.parquet").names
    assert "P@5" in names and "R@10" not in names
