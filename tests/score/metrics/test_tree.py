"""Severity and tree-NDCG by hand on a small tree, and tree-NDCG against scikit-learn."""

import math

import numpy as np
import pytest
import torch
from likewise.metrics import as_text, is_tree_metric, last_rank, level_of, low_is_good, metric, reach
from likewise.types import LikewiseError, TreeRetrieval
from sklearn.metrics import ndcg_score


def results(shared, depth, height, related):
    return TreeRetrieval(*(torch.tensor(part) for part in (shared, depth, height, related)))


def example():
    """Classes a1, a2 below A and b1 below B: depth 2, root of height 2. The gallery has 1 row of a1, 2 of a2 and 3 of b1.

    Query 0 is of a1 and finds a2, a1, b1; query 1 is of b1 and finds b1, a1, a2.
    """
    return results([[1, 2, 0], [2, 0, 0]], [2, 2], [[2, 1, 0], [2, 1, 0]], [[6, 3, 1], [6, 3, 3]])


def test_severity_by_hand():
    value = metric("severity")(example()).tolist()
    assert value[0] == 0.5  # the lowest common ancestor of a1 and a2 is A, of height 1; the root has height 2
    assert math.isnan(value[1])  # its first result is right


def test_severity_of_a_result_of_another_branch_is_one_and_nan_without_relevant_rows():
    found = results([[0], [0], [-1]], [2] * 3, [[2, 1, 0]] * 3, [[6, 3, 1], [6, 3, 0], [6, 3, 1]])
    first, lonely, nothing = metric("severity")(found).tolist()
    assert first == 1.0 and math.isnan(lonely) and math.isnan(nothing)


def test_tree_ndcg_by_hand():
    second = 1 / math.log2(3)
    third = 1 / math.log2(4)
    best = [2 + 1 * second + 1 * third, 2 + 2 * second + 2 * third]
    got = [1 + 2 * second + 0 * third, 2.0]
    expected = torch.tensor([g / b for g, b in zip(got, best)], dtype=torch.float64)
    torch.testing.assert_close(metric("tree-NDCG@3")(example()), expected, rtol=1e-14, atol=0)
    assert metric("tree-NDCG@1")(example()).tolist() == [0.5, 1.0]


def test_tree_ndcg_is_nan_without_relevant_rows():
    assert math.isnan(metric("tree-NDCG@1")(results([[1]], [2], [[2, 1, 0]], [[6, 3, 0]])).item())


@pytest.mark.parity
def test_tree_ndcg_equals_scikit_learn():
    rng = np.random.default_rng(0)
    depth = rng.integers(0, 4, (20, 30))  # shared depths down a ranking of 30 rows; the class is at depth 3
    depth[:, 7] = 3
    related = np.stack([(depth >= d).sum(1) for d in range(4)], 1)
    found = results(depth.tolist(), [3] * 20, [[3, 2, 1, 0]] * 20, related.tolist())
    falling = -np.arange(30.0)
    for k in (1, 5, 30):
        expected = [ndcg_score([one], [falling], k=k) for one in depth]
        np.testing.assert_allclose(metric(f"tree-NDCG@{k}")(found).numpy(), expected, rtol=1e-12)


def test_a_ranking_that_is_too_short_is_an_error():
    with pytest.raises(LikewiseError, match="4 results .* got 3; rank deeper"):
        metric("tree-NDCG@4")(example())


def test_names_of_levels():
    assert [level_of(name) for name in ("R@1", "R@1:level2", "mAP@10/R:level12")] == [None, 2, 12]
    assert [last_rank(name) for name in ("R@8:level1", "MAP@R", "mAP:level2", "severity", "tree-NDCG@5")] == [
        8, None, None, 1, 5,
    ]  # fmt: skip
    assert is_tree_metric("severity") and is_tree_metric("tree-NDCG@5") and not is_tree_metric("NDCG@5")
    assert low_is_good("severity") and not low_is_good("tree-NDCG@5")
    assert reach(["R@8:level1", "mAP:level2"]) == (8, True)
    assert as_text("severity", 0.5) == "50.0 %"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "severity:level1",
            "'severity' measures all levels of the class tree at once, got 'severity:level1'; use severity",
        ),
        ("R@1:family", "a level is named level1 .the coarsest., level2 and so on, as in R@1:level1, got 'R@1:family'"),
        ("R@1:level0", "a level is named level1"),
        ("Q@1:level1", "there is no 'Q@1'"),
        ("NMI:level1", "a metric per query is needed here, but 'NMI' is one value for a whole set"),
        ("tree-NDCG@0", "in tree-NDCG@k k must be an integer of 1 or more"),
    ],
)
def test_wrong_names(name, error):
    with pytest.raises(LikewiseError, match=error):
        metric(name)
