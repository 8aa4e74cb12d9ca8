"""The answers that queries can have."""

import numpy as np
from likewise.protocols import UnseenClasses
from likewise.types import Items

from likewise.score.retrieve import count_relevant_rows, max_results


def test_answers_by_hand():
    """A query is no answer to itself, and rows of its group are none either."""
    y, group = np.array([0, 0, 0, 1, 1, 2]), np.array([5, 5, -1, -1, -1, -1])
    items, rows = Items("toy", y, ("a", "b", "c"), group=group), np.arange(6)
    assert count_relevant_rows(items, UnseenClasses(), rows).tolist() == [1, 1, 2, 1, 1, 0]
    every, first = np.ones(6, bool), rows == 0
    assert max_results(every, every) == 5 and max_results(first, ~first) == 5 and max_results(first, every) == 5
