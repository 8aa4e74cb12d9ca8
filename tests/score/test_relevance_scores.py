"""Metrics with several labels, graded relevance and judged triplets: on paper, by loops, and the bits of single labels."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from likewise.contracts import Relevance
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.types import Items, LikewiseError
from score.several_labels import ALL, by_loops, circle, paper, random_items, scored

import likewise
from likewise.score.retrieve import relevance_of, with_facts


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
    with pytest.raises(
        LikewiseError, match="triplet-agreement needs judged triplets of the evaluated rows, got no relevance"
    ):
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
