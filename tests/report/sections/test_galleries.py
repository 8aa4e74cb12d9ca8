"""Galleries: which queries are shown, and their neighbours."""

import numpy as np

from likewise.report.section import places_of
from likewise.report.sections.galleries import galleries, median_query_per_class, query_as_list, ranked_query


def case(n=40, k=3):
    rng = np.random.default_rng(0)
    label, near = rng.integers(0, 5, n), rng.integers(0, n, (n, k))
    near[0, 1:] = -1
    sim = np.sort(rng.random((n, k)))[:, ::-1].copy()
    value = rng.random(30).round(1)
    value[3] = np.nan
    return np.arange(5, 35), value, label, near, sim


def test_worst_best_and_random_by_hand():
    query, value, label, near, sim = case()
    found = galleries(query, value, label, near, sim, 8)
    known = [i for i in range(30) if not np.isnan(value[i])]
    by_hand = sorted(known, key=lambda i: (value[i], -sim[query[i], 0]))[:8]
    assert [one.place for one in found["worst"]] == [query[i] for i in by_hand]
    assert [one.value for one in found["best"]] == sorted((value[i] for i in known), reverse=True)[:8]
    assert len({one.place for one in found["random"]}) == 8
    assert all(one.place != query[3] for some in found.values() for one in some)
    one = found["best"][0]
    assert [a.place for a in one.neighbours] == near[one.place].tolist()
    assert [a.right for a in one.neighbours] == [bool(label[p] == label[one.place]) for p in near[one.place]]
    again = galleries(query, value, label, near, sim, 8, seed=1)
    assert {o.place for o in again["random"]} != {o.place for o in found["random"]} and again["worst"] == found["worst"]
    assert galleries(query, np.full(30, np.nan), label, near, sim, 8) == {}


def test_one_query_of_each_class_is_the_one_in_the_middle():
    label, value = np.array([0, 0, 0, 1, 1, 2]), np.array([0.9, 0.1, 0.5, 0.7, 0.2, 0.3])
    rng = np.random.default_rng(0)
    assert median_query_per_class(label, value, rng).tolist() == [2, 4, 5]
    assert len(median_query_per_class(np.arange(50), np.ones(50), rng, most=7)) == 7


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
