"""What is relevant in an evaluation: tree, labels, values and triplets, on paper, by loops, and with intervals."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from likewise.contracts import Relevance
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.types import Items, LikewiseError
from score.several_labels import ALL, by_loops, circle, embedded, paper, random_items, scored

import likewise
from likewise.score.retrieve import (
    Scoring,
    count_relevant_rows,
    hidden_groups,
    relevance_of,
    relevance_of_run,
    with_facts,
)
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
    with pytest.raises(LikewiseError, match="`camera` hides rows .*class and camera"):
        hidden_groups(dataclasses.replace(items, camera=np.full(160, "c")))
    with pytest.raises(LikewiseError, match="SharedLabels needs .* several labels"):
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
        with pytest.raises(LikewiseError, match="must have irrelevant gallery rows"):
            likewise.evaluate(z, y, **more, **how)
    sets = [["a", "b"], ["a", "c"]] * 6
    with pytest.raises(LikewiseError, match=r"SharedLabels\(.*\) \(any label shared\)"):
        likewise.evaluate(z, sets, metrics=("R@1", "MAP@R"), **how)
    found = likewise.evaluate(z, sets, **how)
    assert "so any embedding has the same R@1, R@10, RP, MAP@R" in found["note"] and found["metrics"]["NDCG@10"] < 1
    other = likewise.evaluate(z, [*sets[:-1], ["d", "b"]], **how)
    assert "any embedding" not in other.get("note", "")
    with pytest.raises(LikewiseError, match=r"no.* by GivenValues\(...\) \(relevance of 0.5"):
        likewise.evaluate(z, np.zeros(12), relevance=0.1 * rng.random((12, 12)), **how)
    with pytest.raises(LikewiseError, match="all values are lower, not known"):
        likewise.evaluate(z, np.zeros(12), relevance=np.full((12, 12), np.nan), **how)


def test_three_queries_on_paper():
    scores, found = scored(paper(), ("R@1", "MAP@R", "mAP", "NDCG@2", "graded-mAP"))
    nan = math.nan
    expected = {
        "R@1": [1, 1, 0, nan],  # nothing else is blue
        "MAP@R": [1, 1, 0, nan],
        "mAP": [1, 1, 1 / 3, nan],
        "NDCG@2": [1, 1, 0, nan],  # Jaccard: 0 with 1 and 2: 1/2
        "graded-mAP": [(0.5 / 1 + (0.5 + 0.5) / 2) / 1, 1, 1 / 3, nan],
    }
    for name, value in expected.items():
        assert scores.each[name].tolist() == pytest.approx(value, nan_ok=True), name
    assert found.relevant.tolist() == [2, 1, 1, 0]
    assert scores.relevance["relevant"] == "any label shared" and scores.relevance["threshold"] == 0


@pytest.mark.parametrize("spec", [None, "SharedLabels(threshold=0.4)"])
@pytest.mark.parametrize("sides", ["one set", "query and gallery"])
def test_every_metric_equals_a_loop_over_all_pairs(spec, sides):
    items, sets = random_items()
    query, gallery = (None, None) if sides == "one set" else (np.arange(160) < 70, np.arange(160) > 40)
    protocol = UnseenClasses() if query is None else QueryGallery()
    items = dataclasses.replace(items, query=query, gallery=gallery)
    expected = by_loops(items, sets, 1e-9 if spec is None else 0.4, query, gallery)
    relevance = relevance_of(items, np.arange(160), spec)
    for budget in (2**29, 200_000):
        scores, _ = scored(items, ALL, protocol, relevance=relevance, budget=budget)
        for name in ALL:
            # float32 relevances: NDCG and graded-mAP differ from the float64 loop by about 1e-7
            assert scores.each[name] == pytest.approx(np.array(expected[name]), rel=1e-6, nan_ok=True), name
    binary = [name for name in ALL if name != "graded-mAP"]  # hits are then listed at the threshold
    again, _ = scored(items, binary, protocol, relevance=relevance)
    for name in binary:
        assert np.array_equal(again.each[name], scores.each[name], equal_nan=True), name


def test_sets_of_one_label_give_the_bits_of_single_labels():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 9, 150)
    x = (rng.normal(size=(9, 5))[y] + rng.normal(size=(150, 5))).astype(np.float32)
    plain = Items("toy", y, tuple("abcdefghi"), x=x, group=rng.integers(-1, 20, 150))
    names = tuple("abcdefghi")
    sets = dataclasses.replace(plain, label_name=names, label_sets=tuple((c,) for c in range(9)))
    one, other = (scored(items, ALL) for items in (plain, sets))
    for name in ALL:
        assert np.array_equal(one[0].each[name], other[0].each[name], equal_nan=True), name
    assert np.array_equal(one[0].rival, other[0].rival)
    for name in ("row", "match", "sim", "relevant"):
        assert torch.equal(getattr(one[1], name).nan_to_num(), getattr(other[1], name).nan_to_num())
    same = likewise.evaluate(x, y.astype(str), quiet=True, device="cpu")
    hot = np.eye(9)[y]
    assert likewise.evaluate(x, hot, quiet=True, device="cpu")["metrics"] == same["metrics"]
    assert "relevance" not in same


def test_unknown_values_are_no_results():
    """Of the query at 0 degrees, the nearest row is not judged, the next is irrelevant, the last relevant."""
    values = np.full((4, 4), np.nan)
    values[0, 2], values[0, 3] = 0.0, 1.0
    metrics = ("R@1", "R@2", "MRR", "NDCG@2")
    result = likewise.evaluate(
        circle(0, 5, 20, 50), [0, 0, 0, 0], relevance=values, metrics=metrics, quiet=True, device="cpu"
    )
    assert result["metrics"] == pytest.approx({"R@1": 0, "R@2": 1, "MRR": 1 / 2, "NDCG@2": 1 / math.log2(3)})
    assert (result["queries"], result["unscored"]) == (1, 3)


class Judged(Relevance):
    """Judged triplets of five rows."""

    by, gives, ids = "sample", ("triplets",), 5

    def forward(self, a, b):
        raise AssertionError("triplets have no values of pairs")

    def judged(self):
        return np.array([(0, 1, 2), (0, 2, 1), (0, 2, 2), (3, 4, 0)])


def test_triplet_agreement_on_paper():
    items = Items("toy", np.array([0, 0, 1, 1, 1]), ("a", "b"), x=circle(0, 10, 30, 100, 110))
    relevance = with_facts(Judged(), 0.5, items, np.arange(5), "Judged()")
    scores, _ = scored(items, ("R@1", "triplet-agreement"), relevance=relevance)
    # anchor 0: 1 is nearer than 2 (right), 2 than 1 (wrong), 2 than itself (equal: wrong); anchor 3: 4 is nearer than 0
    assert scores.each["triplet-agreement"].tolist() == pytest.approx(
        [1 / 3, math.nan, math.nan, 1, math.nan], nan_ok=True
    )
    plain, _ = scored(items, ("R@1",))
    assert np.array_equal(scores.each["R@1"], plain.each["R@1"]) and scores.relevance["triplets"] == 4
    with pytest.raises(LikewiseError, match="needs judged triplets .* got no relevance"):
        scored(items, ("triplet-agreement",))


def test_triplet_agreement_counts_every_judged_triplet_of_scored_rows(tmp_path):
    """More than `per_anchor` triplets of an anchor, by a loop; a training would take a random part of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)).astype(np.float32)
    judged = [(a, *rng.choice(np.delete(np.arange(30), a), 2, replace=False)) for a in range(3) for _ in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["anchor,nearer,farther", *(",".join(map(str, t)) for t in judged)]))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    holds = [[float(unit[a] @ unit[p] > unit[a] @ unit[n]) for a, p, n in judged if a == one] for one in range(3)]
    spec = f"JudgedTriplets(file='{tmp_path / 't.csv'}')"
    found = likewise.evaluate(x, np.zeros(30), relevance=spec, quiet=True, device="cpu")
    assert found["metrics"] == pytest.approx({"triplet-agreement": np.mean([np.mean(one) for one in holds])})
    assert found["relevance"]["triplets"] == 180 and found["queries"] == 3
