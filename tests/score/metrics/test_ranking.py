"""Metrics by hand, one query at a time, and against pytorch-metric-learning and scikit-learn."""

import math

import pytest
import torch
from likewise.metrics import NAMES, is_tree_metric, metric, needs_triplets, reach
from likewise.types import LikewiseError, Retrieval
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.metrics import average_precision_score, ndcg_score

from likewise.core.retrieval.ranking import rank
from likewise.score.metrics.ranking import hit_number, nan_without_relevant, query_of_hit, sum_over_hits, within_depth


def data(n=120, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 12, (n,), generator=g) ** 2  # uneven classes
    y[0] = 999  # alone in its class
    z = torch.nn.functional.normalize(
        torch.randn(200, 6, generator=g)[y.clamp_max(199)] + torch.randn(n, 6, generator=g), dim=1
    )
    return z, y


def ranked(z, y):
    """For each sample, hit (1) or not (0) down its ranking of all others."""
    return [
        [int(y[j] == y[i]) for j in (z @ z[i]).argsort(descending=True, stable=True).tolist() if j != i]
        for i in range(len(y))
    ]


def retrieval(rankings, depth=None):
    """What the engine gives for these rankings: the ranks of the hits down to `depth` (None: to the end)."""
    last = [len(hits) if depth is None else min(depth, len(hits)) for hits in rankings]
    ranks = [[r for r in range(1, end + 1) if hits[r - 1]] for hits, end in zip(rankings, last)]
    start = torch.tensor([0] + [len(r) for r in ranks]).cumsum(0)
    nothing = torch.zeros(len(rankings), 0)
    return Retrieval(
        torch.arange(len(rankings)), nothing.long(), nothing.bool(), nothing, torch.tensor([sum(h) for h in rankings]),
        torch.tensor(last), torch.tensor([r for own in ranks for r in own], dtype=torch.int64), start,
    )  # fmt: skip


def by_hand(hits, name):
    r = sum(hits)
    kind, _, rest = name.partition("@")
    depth, _, over = rest.partition("/")
    if r == 0:
        return math.nan
    k = int(depth) if depth.isdigit() else {"R": r, "C": r + 1, "": len(hits)}[depth]
    first = hits[:k]
    if kind == "R":
        return float(any(first))
    if kind == "P":
        return sum(first) / k
    if kind == "RP":
        return sum(hits[:r]) / r
    if kind == "MRR":
        return 1 / (first.index(1) + 1) if 1 in first else 0.0
    if kind == "NDCG":
        ideal = sorted(hits, reverse=True)[:k]
        return sum(h / math.log2(i + 2) for i, h in enumerate(first)) / sum(
            h / math.log2(i + 2) for i, h in enumerate(ideal)
        )
    total = sum(sum(hits[: i + 1]) / (i + 1) for i in range(min(k, len(hits))) if hits[i])
    default = "C" if name in ("mAP@C", "mAP/C") else "R"
    return total / {"R": r, "C": r + 1, "min": min(r, k), "hits": max(1, sum(first))}[over or default]


DEEP = ["MRR", "mAP", "mAP/C"]
SHALLOW = [
    "R@1", "R@4", "R@30", "P@1", "P@5", "RP", "MAP@R", "MRR@1", "MRR@3", "NDCG@1", "NDCG@5", "NDCG@30", "mAP@C",
    "mAP@C/R",
    *(f"mAP@{k}/{over}" for k in (1, 5, 30) for over in ("R", "min", "hits", "C")),
]  # fmt: skip


@pytest.mark.parametrize("name", SHALLOW + DEEP)
def test_by_hand(name):
    z, y = data()
    rankings = ranked(z, y)
    value = metric(name)(retrieval(rankings, None if name in DEEP else 30))
    expected = torch.tensor([by_hand(hits, name) for hits in rankings], dtype=torch.float64)
    torch.testing.assert_close(value, expected, rtol=1e-14, atol=0, equal_nan=True)
    assert value[0].isnan() and value[1:].isfinite().all()


def test_the_four_meanings_of_map_at_5():
    rankings = [[1, 0, 0, 0, 0] + [0] * 20 + [1] * 9, [0] * 5 + [1], [1] * 10]  # R = 10, 1 and 10
    found = retrieval(rankings, 11)
    for over, expected in (("R", [0.1, 0, 0.5]), ("min", [0.2, 0, 1]), ("hits", [1, 0, 1]), ("C", [1 / 11, 0, 5 / 11])):
        assert metric(f"mAP@5/{over}")(found).tolist() == pytest.approx(expected, abs=1e-15)


def test_a_perfect_ranking_scores_one_except_where_the_query_itself_is_counted():
    found = retrieval([[1] * 3 + [0] * 9, [1] * 12])  # in the second the gallery ends at R, before C
    for name in ("R@1", "P@3", "RP", "MAP@R", "MRR", "MRR@2", "NDCG@5", "mAP", "mAP@C/R", "mAP@12/R", "mAP@5/min"):
        assert metric(name)(found).tolist() == pytest.approx([1, 1], abs=1e-15), name
    for name in ("mAP@C", "mAP/C", "mAP@12/C"):
        assert metric(name)(found).tolist() == pytest.approx([3 / 4, 12 / 13], abs=1e-15), name


def test_ranks_beyond_the_depth_do_not_count():
    """With the ranks of all hits at hand, a metric still stops where its name says."""
    z, y = data()
    rankings = ranked(z, y)
    for name in SHALLOW:
        assert (
            metric(name)(retrieval(rankings)).nan_to_num(-1).equal(metric(name)(retrieval(rankings, 30)).nan_to_num(-1))
        )


def test_the_engine_ranks_as_deep_as_metrics_reach():
    z, y = data()
    rankings = ranked(z, y)
    for names in (SHALLOW, ["RP", "mAP@C"], DEEP):
        k, all_hits = reach(names)
        found = rank(z, y, k=k, all_hits=all_hits)
        for name in names:
            torch.testing.assert_close(metric(name)(found), metric(name)(retrieval(rankings)), equal_nan=True)


def test_nothing_to_find_at_all():
    found = retrieval([[0, 0, 0], [0, 0, 0]])
    for name in (n.replace("@k", "@2") for n in NAMES if not is_tree_metric(n.replace("@k", "@2"))):
        if needs_triplets([name]):
            continue
        assert metric(name)(found).isnan().all(), name


@pytest.mark.parity
def test_same_means_as_pytorch_metric_learning():
    z, y = data(200)
    full = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_reciprocal_rank"),
        k="max_bin_count", knn_func=CustomKNN(CosineSimilarity()),
    ).get_accuracy(z, y)  # fmt: skip
    cut = AccuracyCalculator(
        include=("mean_average_precision", "precision_at_1"), k=7, knn_func=CustomKNN(CosineSimilarity())
    ).get_accuracy(z, y)
    found = retrieval(ranked(z, y))
    largest = int(y.unique(return_counts=True)[1].max())
    for name, other in (
        ("P@1", full["precision_at_1"]),
        ("RP", full["r_precision"]),
        ("MAP@R", full["mean_average_precision_at_r"]),
        (f"MRR@{largest - 1}", full["mean_reciprocal_rank"]),
        ("mAP@7/R", cut["mean_average_precision"]),
    ):
        assert math.isclose(metric(name)(found).nanmean().item(), other, abs_tol=1e-6), name


@pytest.mark.parity
def test_same_as_scikit_learn():
    rankings = ranked(*data())
    found = retrieval(rankings)
    precision, gain = metric("mAP")(found), metric("NDCG@7")(found)
    for q, hits in list(enumerate(rankings))[1:]:  # the first has nothing to find
        score = [-float(i) for i in range(len(hits))]
        assert precision[q].item() == pytest.approx(average_precision_score(hits, score), abs=1e-12)
        assert gain[q].item() == pytest.approx(ndcg_score([hits], [score], k=7), abs=1e-12)


def test_a_ranking_that_ends_too_early_is_refused():
    rankings = [[0, 1, 0, 1, 0, 1], [1, 1, 0, 0, 0, 0]]  # R = 3 and 2
    for name in ("R@5", "P@5", "MRR@5", "NDCG@5", "mAP@5/R", "mAP@5/hits"):
        with pytest.raises(LikewiseError, match="rank 5 is needed, .* rank 4; rank deeper"):
            metric(name)(retrieval(rankings, 4))
    with pytest.raises(LikewiseError, match="rank 4 is needed, .* at rank 3"):
        metric("mAP@C")(retrieval(rankings, 3))
    with pytest.raises(LikewiseError, match="rank 3 is needed, .* at rank 2"):
        metric("MAP@R")(retrieval(rankings, 2))
    for name in DEEP:
        with pytest.raises(LikewiseError, match="ranks of all .* 1 of 2.*all_hits=True"):
            metric(name)(retrieval(rankings, 5))


NONE = torch.zeros(3, 0)


def two_rankings(depth):
    return Retrieval(
        torch.arange(3), NONE.long(), NONE.bool(), NONE, torch.tensor([3, 0, 1]), torch.tensor([depth] * 3),
        torch.tensor([1, 4, 6, 2]), torch.tensor([0, 3, 3, 4]),
    )  # fmt: skip


def test_every_hit_knows_its_query_and_its_number():
    found = two_rankings(6)
    assert query_of_hit(found).tolist() == [0, 0, 0, 2] and hit_number(found).tolist() == [1, 2, 3, 1]
    assert sum_over_hits(found, torch.tensor([1.0, 2.0, 4.0, 8.0])).tolist() == [7, 0, 8]
    assert nan_without_relevant(found).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("k", "inside"),
    [(1, [1, 0, 0, 0]), (4, [1, 1, 0, 1]), ("R", [1, 0, 0, 0]), ("C", [1, 1, 0, 1]), (None, [1, 1, 1, 1])],
)
def test_hits_within_a_depth(k, inside):
    assert within_depth(two_rankings(6), k).int().tolist() == inside


def test_a_ranking_that_ends_earlier_is_refused():
    with pytest.raises(LikewiseError, match="rank 7 is needed, .* at rank 6"):
        within_depth(two_rankings(6), 7)
