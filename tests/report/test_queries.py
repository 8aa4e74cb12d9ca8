"""Queries by their place in a pool, with their answers."""

import numpy as np

from likewise.report.queries import places_of, query_as_list, ranked_query


def test_a_query_without_an_answer_has_none():
    label, near, sim = (
        np.array([0, 1, 0]),
        np.array([[2, -1], [0, 2], [0, 1]]),
        np.array([[0.9, np.nan], [0.8, 0.7], [0.9, 0.7]]),
    )
    one = ranked_query(0, 0.5, label, near, sim)
    assert len(one.neighbours) == 1 and query_as_list(one) == [0, 0.5, [[2, 0.9, 1]]]


def test_places_by_hand():
    every = np.array([7, 3, 9, 1])
    assert places_of(np.array([[9, 1], [2, 7]]), every).tolist() == [[2, 3], [-1, 0]]
    assert places_of(np.array([-1, 99]), every).tolist() == [-1, -1]


def test_a_neighbour_that_shares_a_label_is_right():
    label, near, sim = np.array([0, 1, 2]), np.array([[1, 2], [0, 2], [0, 1]]), np.ones((3, 2))
    one = ranked_query(0, 0.5, label, near, sim, label_sets=((0, 1), (1, 2), (2,)))
    assert [near.right for near in one.neighbours] == [True, False]
