"""Confusions between labels, counted by hand."""

import numpy as np
import pytest
from report.label_facts import small_pool

from likewise.report.label_confusions import count_label_confusions


def test_a_label_is_lost_for_another():
    pool = small_pool()
    query, first = (
        np.array([0, 1, 3, 5]),
        np.array([1, 3, 1, 4]),
    )  # red for blue, dress for shirt, shirt for dress, nothing lost
    pairs, labels, matrix = count_label_confusions(query, first, pool, 10, 10)
    # of four queries, each of red, dress and shirt is lost once and each of blue, shirt and dress comes once: 1/4 expected
    assert [pair[:4] for pair in pairs] == [(1, 4, 1, pytest.approx(1 / 3)), (3, 0, 1, 0.5), (4, 1, 1, 1.0)]
    assert [pair[4] for pair in pairs] == [(1, 3), (0, 1), (3, 1)]
    assert labels.tolist() == [0, 1, 3, 4]
    by_hand = [[1, 0, 0, 0], [0, 2 / 3, 0, 1 / 3], [0.5, 0, 0.5, 0], [0, 1, 0, 0]]
    assert matrix.tolist() == [pytest.approx(line) for line in by_hand]
    assert count_label_confusions(query, first, pool, 1, 2)[1].tolist() == [1, 4]


def test_without_confusions_there_are_none():
    pool = small_pool()
    assert count_label_confusions(np.array([0, 5]), np.array([5, 0]), pool, 10, 10) is None
    assert count_label_confusions(np.array([0]), np.array([-1]), pool, 10, 10) is None
