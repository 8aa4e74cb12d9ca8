"""Evaluation with several labels and graded relevance: on paper, by loops, and the same bits where labels are single."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import likewise
from likewise.contracts import Relevance
from likewise.evaluation.answers import count_relevant_rows, hidden_groups
from likewise.evaluation.array_labels import items_of_arrays
from likewise.evaluation.label_scores import LabelTable
from likewise.evaluation.relevance import relevance_of, relevance_of_run, with_facts
from likewise.evaluation.scoring import mean_score, score, score_with_galleries, summary
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.types import Embedded, Items, LikewiseError, Tuples

CPU = torch.device("cpu")
ALL = ("R@1", "R@5", "P@5", "RP", "MAP@R", "mAP", "MRR", "NDCG@5", "graded-mAP")


def embedded(items):
    return Embedded(torch.as_tensor(items.x), torch.as_tensor(items.y), torch.arange(len(items)))


def scored(items, metrics, protocol=None, **how):
    return score(embedded(items), items, protocol or UnseenClasses(), metrics, "cosine", CPU, quiet=True, **how)


def circle(*degrees):
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)


def paper():
    """Four points on a circle: 0 red dress, 10 red, 25 dress, 45 blue. Results: of 0: 1 2 3; of 1: 0 2 3; of 2: 1 3 0."""
    return items_of_arrays(circle(0, 10, 25, 45), [["red", "dress"], ["red"], ["dress"], ["blue"]])


def random_items(n=160, seed=0, labels=7):
    rng = np.random.default_rng(seed)
    sets = [sorted(rng.choice(labels, rng.integers(1, 4), replace=False).tolist()) for _ in range(n)]
    middle = rng.normal(size=(labels, 6))
    x = np.stack([middle[one].mean(0) for one in sets]) + 0.5 * rng.normal(size=(n, 6))
    x[20:30] = x[20]
    items = items_of_arrays(x.astype(np.float32), [[f"l{c}" for c in one] for one in sets])
    return dataclasses.replace(items, group=np.where(rng.random(n) < 0.3, rng.integers(0, 12, n), -1)), sets


def by_loops(items, sets, threshold, query=None, gallery=None):
    """Every metric of every query, one pair at a time, with the Jaccard index as relevance."""
    x = items.x.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    whole = [[int(v) for v in row] for row in np.round(x * 2.0**26)]
    each = {name: [] for name in ALL}
    for q in range(len(x)):
        if query is not None and not query[q]:
            continue
        order = []
        for g in range(len(x)):
            if (
                g == q
                or (gallery is not None and not gallery[g])
                or (items.group[q] >= 0 and items.group[q] == items.group[g])
            ):
                continue
            r = len({*sets[q]} & {*sets[g]}) / len({*sets[q]} | {*sets[g]})
            order.append((-sum(a * b for a, b in zip(whole[q], whole[g], strict=True)), g, r))
        values = [r for _, _, r in sorted(order)]
        hits = [r >= threshold for r in values]
        total = sum(hits)
        if not total:
            for name in ALL:
                each[name].append(math.nan)
            continue
        precision = [sum(hits[: i + 1]) / (i + 1) for i in range(len(hits))]
        gain, best = (
            sum(r / math.log2(i + 2) for i, r in enumerate(v[:5])) for v in (values, sorted(values, reverse=True))
        )
        each["R@1"].append(float(hits[0]))
        each["R@5"].append(float(any(hits[:5])))
        each["P@5"].append(sum(hits[:5]) / 5)
        each["RP"].append(sum(hits[:total]) / total)
        each["MAP@R"].append(sum(p for p, h in zip(precision[:total], hits, strict=False) if h) / total)
        each["mAP"].append(sum(p for p, h in zip(precision, hits, strict=True) if h) / total)
        each["MRR"].append(1 / (1 + hits.index(True)))
        each["NDCG@5"].append(gain / best)
        graded = sum(sum(min(r, o) for o in values[: i + 1]) / (i + 1) for i, r in enumerate(values) if r > 0)
        each["graded-mAP"].append(graded / sum(values))
    return each


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


def test_every_label_by_a_loop():
    items, sets = random_items()
    exclude = np.array([[0, 1], [5, 9], [20, 21]])
    result, _, found = score_with_galleries(
        embedded(items), items, UnseenClasses(), ("R@1", "R@5", "R@50"), "cosine", CPU, True, exclude=exclude
    )
    hidden = {(int(a), int(b)) for a, b in exclude} | {(int(b), int(a)) for a, b in exclude}
    assert set(result["labels"]["mean"]) == {"R@1", "R@5"}  # ten results are stored
    each = {}
    for label in range(7):
        hits, sizes = [], 0
        for q in (i for i in range(160) if label in sets[i]):
            rest = [
                g for g in range(160)
                if g != q and label in sets[g] and (q, g) not in hidden and not (items.group[q] == items.group[g] >= 0)
            ]  # fmt: skip
            if rest:
                hits.append([label in sets[g] for g in found.row[q].tolist()])
                sizes += 1
        each[f"l{label}"] = [np.mean([h[0] for h in hits]), np.mean([any(h[:5]) for h in hits]), sizes]
    for label, one in result["labels"]["each"].items():
        assert [*one["metrics"].values(), one["queries"]] == pytest.approx(each[label]), label
        assert all(low < one["metrics"][name] < high for name, (low, high) in one["interval"].items())
    assert result["labels"]["mean"]["R@1"] == pytest.approx(np.mean([one[0] for one in each.values()]))


def test_a_label_table_expands_and_answers():
    table = LabelTable([(0, 2), (1,)])
    place, label = table.expand(np.array([1, 0]))
    assert place.tolist() == [0, 1, 1] and label.tolist() == [1, 0, 2]
    assert table.has(np.array([0, 0, 1]), np.array([2, 1, 1])).tolist() == [True, False, True]


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

    def triplets(self, y):
        a, p, n = (torch.tensor(side) for side in ((0, 0, 0, 3, 4), (1, 2, 2, 4, 0), (2, 1, 2, 0, 1)))
        valid = torch.tensor([True, True, True, True, False])
        return Tuples(a, p, n, valid, torch.ones(5, dtype=torch.bool))


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
    with pytest.raises(LikewiseError, match="every vector must have at least one label, but row 1 has none"):
        items_of_arrays(np.eye(2), [["a"], []])
    with pytest.raises(LikewiseError, match="matrix of labels must hold 0 and 1"):
        items_of_arrays(np.eye(2), np.array([[0, 2], [1, 1]]))
    with pytest.raises(LikewiseError, match="each of the 4 embeddings, got shape"):
        likewise.evaluate(np.eye(4), [0, 0, 1, 1], relevance=np.eye(3), quiet=True)


def test_counts_and_means_for_validation():
    items, sets = random_items()
    rows = np.arange(160)
    count = count_relevant_rows(items, UnseenClasses(), rows)
    _, found = scored(items, ("R@1",))
    assert torch.equal(count, found.relevant)
    e = embedded(items)
    value = mean_score(dataclasses.replace(e, e=e.z), items, UnseenClasses(), "NDCG@5", "cosine", CPU)
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
        return summary(scores, embedded(items), "cosine", ("R@1", "NDCG@5"), CPU)

    found = [draw() for _ in range(120)]
    assert found[0]["interval_over"] == "label sets"
    for name in ("R@1", "NDCG@5"):
        truth = np.mean([one["metrics"][name] for one in found])
        ends = [one["interval"][name] for one in found if name in one["interval"]]
        share = np.mean([low <= truth <= high for low, high in ends])
        assert len(ends) > 100 and 0.88 <= share <= 1, (name, share)  # 95 % of 120, less three standard errors
