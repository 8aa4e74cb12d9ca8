"""Which queries are shown: the order by hand, NaN left out, equals at random, pictures spread over the classes."""

from collections import Counter

import numpy as np

from likewise.report.queries import ask, changed_most, galleries, one_a_class, worth_a_picture


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
    assert [a.place for a in one.answers] == near[one.place].tolist()
    assert [a.right for a in one.answers] == [bool(label[p] == label[one.place]) for p in near[one.place]]
    again = galleries(query, value, label, near, sim, 8, seed=1)
    assert {o.place for o in again["random"]} != {o.place for o in found["random"]} and again["worst"] == found["worst"]
    assert galleries(query, np.full(30, np.nan), label, near, sim, 8) == {}


def test_a_query_without_an_answer_has_none():
    *_, label, near, sim = case()
    assert len(ask(0, 0.5, label, near, sim).answers) == 1


def test_one_query_of_each_class_is_the_one_in_the_middle():
    label, value = np.array([0, 0, 0, 1, 1, 2]), np.array([0.9, 0.1, 0.5, 0.7, 0.2, 0.3])
    rng = np.random.default_rng(0)
    assert one_a_class(label, value, rng).tolist() == [2, 4, 5]
    assert len(one_a_class(np.arange(50), np.ones(50), rng, most=7)) == 7


def test_changes_are_half_gains_and_half_losses_the_largest_first():
    old = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, np.nan])
    new = np.array([0.9, 0.8, 0.7, 0.4, 0.1, 0.5, 0.5])
    assert changed_most(old, new, 2).tolist() == [0, 4]
    assert changed_most(old, new, 4).tolist() == [0, 4, 1, 3]
    assert changed_most(old, new, 9).tolist() == [0, 4, 1, 2, 3]
    assert changed_most(old, old + 0.1, 3).tolist() == [0, 1, 2]  # no losses: all of them gains
    assert len(changed_most(old, old, 3)) == 0


def test_pictures_go_to_what_is_shown_and_then_round_the_classes():
    label = np.repeat([0, 1, 2], [20, 10, 2])
    places = worth_a_picture(label, [7, 3, 7], 11)
    assert places[:2].tolist() == [7, 3] and len(set(places.tolist())) == 11
    assert min(Counter(label[worth_a_picture(label, [], 6)].tolist()).values()) == 2
    assert sorted(worth_a_picture(label, [1], 99)) == list(range(32))
