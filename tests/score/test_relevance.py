"""What is relevant in an evaluation: the tree, shared labels, that of a run; and intervals over label sets."""

import dataclasses

import numpy as np
import pytest
import torch
from likewise.protocols import UnseenClasses
from likewise.types import Items, LikewiseError
from score.several_labels import by_loops, embedded, random_items, scored

import likewise
from likewise.score.retrieve import Scoring, count_relevant_rows, hidden_groups, relevance_of, relevance_of_run
from likewise.score.scoring import mean_score, summary


def tree_items():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 8)
    x = (rng.normal(size=(4, 4))[y] + 0.7 * rng.normal(size=(32, 4))).astype(np.float32)
    tree = {"a": ("cat",), "b": ("cat",), "c": ("dog",), "d": ("dog",)}
    return Items("tree", y, tuple("abcd"), x=x, taxonomy=tree)


def test_a_tree_as_relevance_is_tree_ndcg_and_leaves_the_other_metrics_as_they_are():
    items = tree_items()
    relevance = relevance_of(items, np.arange(32), "TreeDepth()")
    names = ("R@1", "MAP@R", "R@1:level1", "tree-NDCG@5")
    plain, _ = scored(items, names)
    graded, _ = scored(items, (*names, "NDCG@5"), relevance=relevance)
    for name in names:
        assert np.array_equal(plain.each[name], graded.each[name]), name
    # depths 0, 1, 2 are relevances 0, 1/2, 1: the same ratio of sums
    assert graded.each["NDCG@5"] == pytest.approx(plain.each["tree-NDCG@5"], rel=1e-12)
    assert relevance.facts["relevant"] == "same class" and relevance.facts["threshold"] == 1


def test_what_does_not_apply_to_several_labels_is_an_error():
    items, _ = random_items()
    with pytest.raises(LikewiseError, match="'NMI' needs one class per sample"):
        scored(items, ("R@1", "NMI"))
    scores, _ = scored(items, ("R@1", "rho"))
    assert list(scores.each) == ["R@1"]
    with pytest.raises(LikewiseError, match="`camera` hides rows of the query's own class and camera"):
        hidden_groups(dataclasses.replace(items, camera=np.full(160, "c")))
    with pytest.raises(LikewiseError, match="SharedLabels needs data with several labels per sample"):
        relevance_of(tree_items(), np.arange(4), "SharedLabels()")


def test_counts_and_means_for_validation():
    items, sets = random_items()
    rows = np.arange(160)
    count = count_relevant_rows(items, UnseenClasses(), rows)
    _, found = scored(items, ("R@1",))
    assert torch.equal(count, found.relevant)
    e = embedded(items)
    value = mean_score(dataclasses.replace(e, e=e.z), Scoring(items, UnseenClasses(), ["NDCG@5"], quiet=True))
    assert value == pytest.approx(np.nanmean(by_loops(items, sets, 1e-9)["NDCG@5"]), rel=1e-6)


def test_the_relevance_of_a_run_is_used_where_the_data_has_what_it_needs():
    items, rows = tree_items(), np.arange(32)
    assert relevance_of_run("SharedLabels(threshold=0.5)", None, items, rows, False) is None
    assert relevance_of_run("TreeDepth()", None, dataclasses.replace(items, taxonomy=None), rows, False) is None
    found = relevance_of_run("TreeDepth(threshold=0.5)", None, items, rows, False)
    assert found.threshold == 0.5 and found.facts["relevant"] == "relevance of 0.5 or more"
    several, _ = random_items()
    trained = relevance_of_run("SharedLabels(measure='overlap', threshold=0.5)", None, several, np.arange(160), False)
    assert trained.facts["relevant"] == "any label shared"  # the threshold is that of training
    named = relevance_of_run("SharedLabels()", "SharedLabels(threshold=0.5)", several, np.arange(160), False)
    assert named.threshold == 0.5


def test_intervals_over_label_sets_hold_for_other_sets_of_the_same_labels():
    """Sets of a population of 400 are drawn, with all their rows; the interval must hold the mean of many such draws."""
    rng = np.random.default_rng(0)
    labels, dim = 12, 8
    middle = rng.normal(size=(labels, dim))
    sets = sorted({tuple(sorted(rng.choice(labels, rng.integers(1, 4), replace=False))) for _ in range(2000)})
    own = 0.8 * rng.normal(size=(len(sets), dim))  # what rows of one set share beyond their labels

    def draw():
        drawn = rng.choice(len(sets), 40, replace=False)
        y = np.repeat(np.arange(40), 5)
        x = np.stack([middle[list(sets[c])].mean(0) for c in drawn]) + own[drawn]
        x = (x[y] + 0.8 * rng.normal(size=(200, dim))).astype(np.float32)
        chosen = tuple(tuple(map(int, sets[c])) for c in drawn)
        items = Items(
            "toy", y, tuple(map(str, range(40))), x=x, label_name=tuple(map(str, range(labels))), label_sets=chosen
        )
        scores, _ = scored(items, ("R@1", "NDCG@5"))
        return summary(scores, embedded(items), Scoring(items, UnseenClasses(), ("R@1", "NDCG@5")))

    found = [draw() for _ in range(120)]
    assert found[0]["interval_over"] == "label sets"
    for name in ("R@1", "NDCG@5"):
        truth = np.mean([one["metrics"][name] for one in found])
        ends = [one["interval"][name] for one in found if name in one["interval"]]
        share = np.mean([low <= truth <= high for low, high in ends])
        assert len(ends) > 100 and 0.88 <= share <= 1, (name, share)  # 95 % of 120, less three standard errors


def test_a_relevance_that_makes_every_row_relevant_is_refused_or_noted():
    """As with a single class. Values that differ still decide metrics of values: the others are then named."""
    z, rng = np.random.default_rng(0).normal(size=(12, 4)), np.random.default_rng(1)
    how = {"quiet": True, "device": "cpu"}
    for y, more in (([["a", "b"]] * 12, {}), (np.arange(12) % 3, {"relevance": np.full((12, 12), 0.8)})):
        with pytest.raises(LikewiseError, match="must have irrelevant gallery rows, but all of them are relevant by"):
            likewise.evaluate(z, y, **more, **how)
    sets = [["a", "b"], ["a", "c"]] * 6
    with pytest.raises(LikewiseError, match=r"relevant by SharedLabels\(.*\) \(any label shared\), so every result"):
        likewise.evaluate(z, sets, metrics=("R@1", "MAP@R"), **how)
    found = likewise.evaluate(z, sets, **how)
    assert "so any embedding has the same R@1, R@10, RP, MAP@R" in found["note"] and found["metrics"]["NDCG@10"] < 1
    other = likewise.evaluate(z, [*sets[:-1], ["d", "b"]], **how)
    assert "any embedding" not in other.get("note", "")
    with pytest.raises(
        LikewiseError, match=r"no.* queries has a relevant gallery row by GivenValues\(...\) \(relevance of 0.5"
    ):
        likewise.evaluate(z, np.zeros(12), relevance=0.1 * rng.random((12, 12)), **how)
    with pytest.raises(LikewiseError, match="all values are lower, not known, or of excluded rows"):
        likewise.evaluate(z, np.zeros(12), relevance=np.full((12, 12), np.nan), **how)
