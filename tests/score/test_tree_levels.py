"""Evaluation by level: by hand on a tiny tree, and equal to the plain metrics with the groups of a level as labels."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.types import Items, LikewiseError
from score.several_labels import embedded, scored
from sklearn.metrics import ndcg_score

import likewise
from likewise.score.retrieve import Scoring
from likewise.score.scoring import summary
from likewise.score.tree_levels import plan_levels, tree_facts

CPU = torch.device("cpu")
UNEVEN = {  # paths of different lengths; "d" is named as a group is, and the "small" below dog is not that below cat
    "a": ("animal", "cat", "small"), "b": ("animal", "cat", "small"), "c": ("animal", "cat", "large"), "d": ("animal",),
    "e": ("animal", "dog", "small"), "f": ("plant",), "g": ("plant",), "h": (),
}  # fmt: skip


def tiny():
    """Five points on a circle, in degrees: a 0, b 10, c 50, a 70, b 95; a and b are cats, c is a dog."""
    angle = np.radians([0, 10, 50, 70, 95])
    x = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    tree = {"a": ("cat",), "b": ("cat",), "c": ("dog",)}
    return Items("tiny", np.array([0, 1, 2, 0, 1]), ("a", "b", "c"), x=x, taxonomy=tree)


def random_items(n=240, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 8, n)
    y[:3] = 7
    middle = rng.normal(size=(8, 6))
    middle[1] = middle[0] + 0.3 * rng.normal(size=6)
    x = (middle[y] + rng.normal(size=(n, 6))).astype(np.float32)
    return Items("toy", y, tuple("abcdefgh"), x=x, taxonomy=UNEVEN, group=np.where(rng.random(n) < 0.2, y % 3, -1))


def test_a_tiny_tree_by_hand():
    names = ("R@1", "R@1:level1", "MAP@R:level1", "mAP:level1", "MRR:level1", "severity", "tree-NDCG@2")
    scores, found = scored(tiny(), names)
    # results, where A and B are the second a and b: of a: b c A B; of b: a c A B; of c: A b B a; of A: c B b a; of B: A c b a
    nan, second = math.nan, 1 / math.log2(3)
    expected = {
        "R@1": [0, 0, nan, 0, 0],
        "R@1:level1": [1, 1, nan, 0, 1],  # a dog alone: nothing to find
        "MAP@R:level1": [(1 + 2 / 3) / 3, (1 + 2 / 3) / 3, nan, (1 / 2 + 2 / 3) / 3, (1 + 2 / 3) / 3],
        "mAP:level1": [
            (1 + 2 / 3 + 3 / 4) / 3, (1 + 2 / 3 + 3 / 4) / 3, nan, (1 / 2 + 2 / 3 + 3 / 4) / 3, (1 + 2 / 3 + 3 / 4) / 3,
        ],
        "MRR:level1": [1, 1, nan, 1 / 2, 1],
        "severity": [1 / 2, 1 / 2, nan, 1, 1 / 2],  # the root has height 2, the cats 1
        # one row of the class (depth 2), two of the other cats (depth 1); results have the depths 1 0, 1 0, -, 0 1, 1 0
        "tree-NDCG@2": [v / (2 + second) for v in (1, 1)] + [nan] + [v / (2 + second) for v in (second, 1)],
    }  # fmt: skip
    for name in names:
        np.testing.assert_allclose(scores.each[name], expected[name], rtol=1e-14, err_msg=name)
    assert found.match[0].tolist() == [False, False, True, False, False] and found.relevant.tolist() == [1, 1, 0, 1, 1]


LEVEL_METRICS = ("R@1", "R@20", "P@3", "RP", "MAP@R", "MRR", "MRR@4", "NDCG@12", "mAP", "mAP@5/hits", "mAP@C")


@pytest.mark.parametrize("metrics", [LEVEL_METRICS, ("R@1", "P@30"), ("R@4", "MAP@R")])
def test_a_level_equals_the_plain_metric_with_its_groups_as_labels(metrics):
    """With the same bits, on all levels at once, with groups, excluded pairs, queries apart from the gallery."""
    items = random_items()
    pairs = np.array([[5, 9], [7, 100], [0, 1]])
    sides = {"query": np.arange(240) % 3 > 0, "gallery": np.arange(240) > 20}
    for protocol, data in ((UnseenClasses(), items), (QueryGallery(), dataclasses.replace(items, **sides))):
        names = [f"{m}{level}" for m in metrics for level in ("", ":level1", ":level2", ":level3")]
        all_at_once, found = scored(data, names, protocol, exclude=pairs)
        _, plain_found = scored(data, metrics, protocol, exclude=pairs)
        for name in ("row", "match", "sim", "relevant"):
            assert torch.equal(getattr(found, name).nan_to_num(), getattr(plain_found, name).nan_to_num()), name
        for level in range(4):
            paths = [UNEVEN[name][:level] if level else (name,) for name in items.class_name]
            missing = np.array([len(path) < level for path in paths])
            nodes = list(dict.fromkeys(paths))
            label = np.where(missing, 90 + np.arange(8), [nodes.index(path) for path in paths])[items.y]
            missing = missing[items.y]
            plain, _ = scored(dataclasses.replace(data, y=label), metrics, protocol, exclude=pairs)
            for name in metrics:
                got = all_at_once.each[f"{name}:level{level}" if level else name]
                expected = np.where(missing[plain.query], np.nan, plain.each[name])
                assert np.array_equal(got, expected, equal_nan=True), (name, level)
                assert level == 0 or np.isnan(got).any()


def test_severity_and_tree_ndcg_one_query_at_a_time():
    """On paths of different lengths, against a plain loop and scikit-learn."""
    items = random_items()
    items = dataclasses.replace(items, group=None)
    scores, _ = scored(items, ("severity", "tree-NDCG@15", "R@1"))
    unit = items.x.astype(np.float64) / np.linalg.norm(items.x.astype(np.float64), axis=1)[:, None]
    path = [(*UNEVEN[items.class_name[c]], f"class {c}") for c in range(8)]

    def shared(a, b):
        return next((d for d, (u, v) in enumerate(zip(path[a], path[b])) if u != v), len(path[a]))

    def height(node):
        return max(len(p) for p in path if p[: len(node)] == node) - len(node)

    for q in range(0, 240, 5):
        order = [j for j in np.argsort(-(unit @ unit[q]), kind="stable") if j != q]
        depths = [shared(items.y[q], items.y[j]) for j in order]
        first, own = items.y[order[0]], items.y[q]
        assert scores.each["R@1"][q] == (first == own)
        expected = math.nan if first == own else height(path[own][: shared(own, first)]) / height(())
        assert scores.each["severity"][q] == pytest.approx(expected, rel=1e-14, nan_ok=True)
        by_sklearn = ndcg_score([depths], [-np.arange(len(depths), dtype=float)], k=15)
        assert scores.each["tree-NDCG@15"][q] == pytest.approx(by_sklearn, rel=1e-12)


def test_only_the_first_results_are_ranked_for_coarse_levels_with_a_fixed_depth():
    items = random_items()
    y = torch.as_tensor(items.y)
    classes = 4  # three levels, then the classes
    assert plan_levels(["R@1", "MAP@R"], items, y) is None
    assert (lambda p: (p.ranked, p.shown))(plan_levels(["MAP@R", "R@30:level1"], items, y)) == (classes, 30)
    assert (lambda p: (p.ranked, p.shown))(plan_levels(["R@30:level1", "RP:level2"], items, y)) == (2, 30)
    assert (lambda p: (p.ranked, p.shown))(plan_levels(["R@30:level3", "mAP:level1", "severity"], items, y)) == (1, 1)


def test_means_and_intervals_are_over_the_queries_that_a_metric_is_defined_for():
    items = random_items()
    names = ("R@1", "severity", "R@1:level3")
    scores, _ = scored(items, names)
    found = summary(scores, embedded(items), Scoring(items, UnseenClasses(), names))
    wrong = scores.each["R@1"] == 0
    assert found["metrics"]["severity"] == pytest.approx(scores.each["severity"][wrong].mean(), rel=1e-12)
    assert found["scored"] == {"severity": wrong.sum(), "R@1:level3": (~np.isnan(scores.each["R@1:level3"])).sum()}
    assert found["queries"] == 240 - found["unscored"] and set(found["interval"]) == set(names)
    facts = tree_facts(names, items, items.y, scores)["tree"]
    assert facts["levels"] == {"level1": 2, "level2": 2, "level3": 3} and facts["height"] == 4
    assert sum(facts["mistakes_by_height"].values()) == wrong.sum()
    assert sum(int(h) * n for h, n in facts["mistakes_by_height"].items()) / 4 / wrong.sum() == pytest.approx(
        found["metrics"]["severity"], rel=1e-12
    )


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        (
            None,
            r"'R@1:level4' needs a class tree, but 'toy' has none; give --taxonomy to `likewise evaluate` .* column `coarse`",
        ),
        (
            UNEVEN,
            r"needs level 4 of the class tree, which has 3 levels \(groups on each, coarsest first: 2, 2, 3\)",
        ),
        ({"a": ("cat",)}, "7 of 8 classes are not in the tree: b, c, d, e, f, ..."),
    ],
)
def test_errors(tree, error):
    with pytest.raises(LikewiseError, match=error):
        scored(dataclasses.replace(random_items(), taxonomy=tree), ("R@1", "R@1:level4"))


def test_evaluate_takes_a_tree_from_a_file(tmp_path):
    items = random_items()
    names = np.array(items.class_name)[items.y]
    file = tmp_path / "tree.csv"
    file.write_text("\n".join(",".join((name, *above)) for name, above in UNEVEN.items()))
    found = likewise.evaluate(items.x, names, metrics=("R@1:level2", "severity"), taxonomy=str(file), quiet=True)
    plain, _ = scored(dataclasses.replace(items, group=None), ("R@1:level2", "severity"))
    assert found["metrics"]["severity"] == pytest.approx(np.nanmean(plain.each["severity"]), rel=1e-12)
    assert found["tree"]["height"] == 4 and "mistakes_by_height" in found["tree"]
