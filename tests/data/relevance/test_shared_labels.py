"""Shared labels against sets of Python, and without a tensor of anchors x references x labels."""

import numpy as np
import pytest
import torch
from likewise.relevance import SharedLabels
from likewise.types import LikewiseError

from likewise.core.retrieval.integer_scores import Exclusions
from likewise.core.retrieval.relevant_rows import ANY_RELEVANCE, GradedRows, RowRelevance
from likewise.testing import check_relevance

SETS = ((0, 1), (1,), (1, 2, 3), (4,), (0, 1, 2, 3))


def draw_sets(count: int, labels: int, most: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    return [tuple(sorted(rng.permutation(labels)[: rng.integers(1, most + 1)].tolist())) for _ in range(count)]


def by_hand(a: tuple[int, ...], b: tuple[int, ...], measure: str) -> float:
    one, other = set(a), set(b)
    common = len(one & other)
    return {
        "jaccard": common / len(one | other),
        "overlap": common / min(len(one), len(other)),
        "any": float(common > 0),
    }[measure]


@pytest.mark.parametrize("measure", ["jaccard", "overlap", "any"])
def test_the_contract(measure):
    check_relevance(lambda: SharedLabels(SETS, measure=measure))


@pytest.mark.parametrize("measure", ["jaccard", "overlap", "any"])
def test_by_hand(measure):
    sets = [*SETS, *draw_sets(40, 12, 6)]
    a, b = torch.arange(len(sets)), torch.arange(len(sets)).flip(0)
    expected = torch.tensor([[by_hand(sets[i], sets[j], measure) for j in b] for i in a])
    # Counts are exact in float32; one division rounds to 6e-8 of the value.
    torch.testing.assert_close(SharedLabels(sets, measure=measure)(a, b), expected, rtol=1e-7, atol=0)


def test_values_of_a_small_case():
    relevance = SharedLabels(SETS)
    assert relevance(torch.tensor([0]), torch.arange(5)).tolist() == [[1.0, 0.5, 0.25, 0.0, 0.5]]
    assert (
        relevance.targets(torch.tensor([3, 0])).tolist() == [[0, 0, 0, 0, 1], [1, 1, 0, 0, 0]] and relevance.width == 5
    )
    tiny = SharedLabels(SETS, threshold=1e-6).pairs(torch.arange(5), torch.arange(5))
    shares = SharedLabels(SETS, measure="any").pairs(torch.arange(5), torch.arange(5))
    assert torch.equal(tiny.pos, shares.pos) and torch.equal(tiny.neg, shares.neg)


def test_one_label_each_is_equal_classes():
    y = torch.tensor([2, 0, 1, 0])
    for measure in ("jaccard", "overlap", "any"):
        assert torch.equal(SharedLabels([(0,), (1,), (2,)], measure=measure)(y, y), (y[:, None] == y[None, :]).float())


def test_no_tensor_of_pairs_times_labels(largest_tensor):
    relevance = SharedLabels(draw_sets(300, 50, 20))
    a, b = torch.arange(60), torch.arange(300)
    largest = largest_tensor(lambda: relevance(a, b))
    assert largest <= max(60 * 300, 300 * 51, 300 * 20)


def test_bad_arguments():
    for bad in ([], [(0,), ()]):
        with pytest.raises(LikewiseError, match="at least one label"):
            SharedLabels(bad)


def test_ranking_counts_the_labels_in_its_memory(largest_tensor):
    """Many labels: the matrix of rows and labels is made for some rows at a time, and the values are the same."""
    rng, rows, labels, budget = np.random.default_rng(0), 300, 4000, 400_000
    relevance = SharedLabels([tuple(rng.choice(labels, 3, replace=False).tolist()) for _ in range(rows)])
    ids = torch.arange(rows)
    assert relevance.row_bytes == 4 * (relevance.labels + 1) > 15_000
    given = RowRelevance(relevance, ids, ids, ANY_RELEVANCE, best=5, row_bytes=relevance.row_bytes)
    none = Exclusions(rows, ids, torch.zeros((0, 2), dtype=torch.int64), ())
    found = []
    made = largest_tensor(lambda: found.append(GradedRows(given, torch.device("cpu"), budget).survey(none)))
    assert made <= budget // 4
    whole = GradedRows(given, torch.device("cpu"), 2**30)
    assert whole.table is not None
    for one, other in zip(found[0], whole.survey(none), strict=True):
        assert torch.equal(one, other)
