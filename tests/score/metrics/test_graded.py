"""Graded metrics: three queries on paper, brute force over all pairs, and NDCG of scikit-learn."""

import math

import numpy as np
import pytest
import torch
from likewise.metrics import graded_depth, is_graded, last_rank, metric, needs_graded_hits, needs_triplets, reach
from likewise.types import LikewiseError, Retrieval
from sklearn.metrics import ndcg_score


def ranking(values, threshold=0.5, agreement=None):
    """A ranking from the relevance of all gallery rows, in ranked order; every row above 0 is a hit with a value."""
    value = torch.tensor(values)
    rows = torch.arange(value.shape[1]).expand_as(value)
    query, at = (value > 0).nonzero(as_tuple=True)
    count = torch.bincount(query, minlength=len(value))
    start = torch.cat([torch.zeros(1, dtype=torch.int64), count.cumsum(0)])
    return Retrieval(
        torch.arange(len(value)), rows, value >= threshold, value, count, torch.full((len(value),), value.shape[1]), at + 1,
        start, value=value, best=value.sort(dim=1, descending=True).values, hit_value=value[query, at], agreement=agreement,
    )  # fmt: skip


PAPER = [[0.5, 0.0, 1.0], [1.0, 0.5, 0.25], [0.0, 0.0, 0.5]]


def test_ndcg_on_paper():
    second, third = 1 / math.log2(3), 0.5
    best = [1 + 0.5 * second, 1 + 0.5 * second + 0.25 * third, 0.5]
    got = [0.5 + 1.0 * third, 1 + 0.5 * second + 0.25 * third, 0.5 * third]
    expected = torch.tensor([g / b for g, b in zip(got, best, strict=True)], dtype=torch.float64)
    torch.testing.assert_close(metric("NDCG@3")(ranking(PAPER)), expected, rtol=1e-14, atol=0)
    assert metric("nDCG@1")(ranking(PAPER)).tolist() == [0.5, 1.0, 0.0]  # the spelling of papers


def test_graded_average_precision_on_paper():
    expected = [
        (0.5 / 1 + (1 + 0.5) / 3) / 1.5,  # at rank 3: itself, and min(1, 0.5) before it
        (1 / 1 + (0.5 + 0.5) / 2 + (0.25 + 0.25 + 0.25) / 3) / 1.75,
        (0.5 / 3) / 0.5,
    ]
    torch.testing.assert_close(
        metric("graded-mAP")(ranking(PAPER)), torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0
    )


def test_relevance_of_zero_and_one_gives_the_binary_metrics_bit_for_bit():
    g = torch.Generator().manual_seed(0)
    found = ranking((torch.rand(40, 30, generator=g) < 0.3).float().tolist())
    plain = Retrieval(
        found.query, found.row, found.match, found.sim, found.relevant, found.depth, found.hit_rank, found.start
    )
    for k in (1, 7, 30):
        assert torch.equal(metric(f"NDCG@{k}")(found), metric(f"NDCG@{k}")(plain))
    assert torch.equal(metric("graded-mAP")(found), metric("mAP")(plain))
    assert torch.equal(metric("graded-mAP")(plain), metric("mAP")(plain))


def test_graded_average_precision_by_a_loop_over_pairs():
    g = torch.Generator().manual_seed(1)
    values = (torch.rand(25, 40, generator=g) * (torch.rand(25, 40, generator=g) < 0.6)).float()
    values[3] = 0.0
    values[4, :20] = 0.25  # equal values
    expected = []
    for row in values.double().tolist():
        total = sum(sum(min(r, other) for other in row[: i + 1]) / (i + 1) for i, r in enumerate(row) if r > 0)
        expected.append(total / sum(row) if sum(row) else math.nan)
    # values are rounded to 2^-40, which is 1e-12
    torch.testing.assert_close(
        metric("graded-mAP")(ranking(values.tolist())), torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=0,
        equal_nan=True,
    )  # fmt: skip


@pytest.mark.parity
@pytest.mark.parametrize("k", [1, 5, 20])
def test_ndcg_equals_scikit_learn(k):
    rng = np.random.default_rng(0)
    values = rng.random((30, 20)).astype(np.float32)
    expected = [ndcg_score([row], [-np.arange(20.0)], k=k) for row in values.astype(np.float64)]
    assert metric(f"NDCG@{k}")(ranking(values.tolist())).tolist() == pytest.approx(expected, rel=1e-12)


def test_agreement_is_what_the_ranking_brings():
    share = torch.tensor([0.5, math.nan, 1.0], dtype=torch.float64)
    assert torch.equal(
        metric("triplet-agreement")(ranking(PAPER, agreement=share)).nan_to_num(-1), share.nan_to_num(-1)
    )
    with pytest.raises(LikewiseError, match="triplet-agreement needs judged triplets"):
        metric("triplet-agreement")(ranking(PAPER))


def test_what_the_names_need():
    assert graded_depth(["R@1", "NDCG@7", "nDCG@3", "graded-mAP"]) == 7 and graded_depth(["R@50"]) == 0
    assert needs_graded_hits(["R@1", "graded-mAP"]) and not needs_graded_hits(["NDCG@5", "mAP"])
    assert is_graded("NDCG@5") and is_graded("nDCG@5:level1") and not is_graded("MAP@R")
    assert needs_triplets(["triplet-agreement"]) and last_rank("triplet-agreement") == 1
    assert reach(["graded-mAP"]).all_hits and not reach(["NDCG@5"]).all_hits


def test_too_few_results_are_an_error():
    with pytest.raises(LikewiseError, match="relevance of 4 results .* got 3"):
        metric("NDCG@4")(ranking(PAPER))
