"""The hits of two rankings, by hand. Query 0 finds 3 at ranks 1, 4 and 6; query 1 finds nothing; query 2 finds 1 at rank 2."""

import pytest
import torch
from likewise.types import LikewiseError, Retrieval

from likewise.score.metrics.ranking import hit_number, nan_without_relevant, query_of_hit, sum_over_hits, within_depth

NONE = torch.zeros(3, 0)


def retrieval(depth):
    return Retrieval(
        torch.arange(3), NONE.long(), NONE.bool(), NONE, torch.tensor([3, 0, 1]), torch.tensor([depth] * 3),
        torch.tensor([1, 4, 6, 2]), torch.tensor([0, 3, 3, 4]),
    )  # fmt: skip


def test_every_hit_knows_its_query_and_its_number():
    found = retrieval(6)
    assert query_of_hit(found).tolist() == [0, 0, 0, 2] and hit_number(found).tolist() == [1, 2, 3, 1]
    assert sum_over_hits(found, torch.tensor([1.0, 2.0, 4.0, 8.0])).tolist() == [7, 0, 8]
    assert nan_without_relevant(found).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("k", "inside"),
    [(1, [1, 0, 0, 0]), (4, [1, 1, 0, 1]), ("R", [1, 0, 0, 0]), ("C", [1, 1, 0, 1]), (None, [1, 1, 1, 1])],
)
def test_hits_within_a_depth(k, inside):
    assert within_depth(retrieval(6), k).int().tolist() == inside


def test_a_ranking_that_ends_earlier_is_refused():
    with pytest.raises(LikewiseError, match="rank 7 is needed, but the ranking ends at rank 6"):
        within_depth(retrieval(6), 7)
