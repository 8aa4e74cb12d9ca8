"""Confusions of classes and of single labels, counted by hand."""

from collections import Counter

import numpy as np
import pytest
from PIL import Image
from report.made_facts import small_pool

from likewise.report.section import Pool
from likewise.report.sections.confusion import Confused, count_confusions, count_label_confusions, examples


def case(n=300, classes=9, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, n)
    query = np.sort(rng.choice(n, 200, replace=False))
    first = rng.integers(0, n, 200)
    first[:5] = -1  # without an answer
    return query, first, label, rng.normal(size=(classes, 4))


def test_pairs_and_matrix_by_hand():
    query, first, label, mean = case()
    asked, taken = Counter(), Counter()
    for q, f in zip(query, first):
        if f >= 0:
            asked[label[q]] += 1
            taken[label[q], label[f]] += 1
    found = count_confusions(query, first, label, mean, pairs=11, classes=6)
    wrong = {pair: n for pair, n in taken.items() if pair[0] != pair[1]}
    by_hand = sorted(wrong, key=lambda p: (-wrong[p], -wrong[p] / asked[p[0]], p))[:11]
    assert [(one.a, one.b) for one in found.pairs] == by_hand
    for one in found.pairs:
        assert one.count == wrong[one.a, one.b] and np.isclose(one.share, one.count / asked[one.a])
        q, f = one.example
        assert label[q] == one.a and label[f] == one.b and first[list(query).index(q)] == f
    in_order = list(
        dict.fromkeys(c for pair in sorted(wrong, key=lambda p: (-wrong[p], -wrong[p] / asked[p[0]], p)) for c in pair)
    )
    assert sorted(found.classes) == sorted(in_order[:6])
    for i, a in enumerate(found.classes):
        for j, b in enumerate(found.classes):
            assert np.isclose(found.matrix[i, j], taken[a, b] / asked[a])


def test_similar_classes_stand_side_by_side():
    query, first, label, _ = case(classes=4)
    mean = np.array([[0.0], [10.0], [0.1], [10.1]])
    order = count_confusions(query, first, label, mean).classes.tolist()
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}
    assert count_confusions(query, first, label).classes.tolist() == [0, 1, 2, 3]  # without means, by number


def test_nobody_confused_is_nothing():
    query, label = np.arange(6), np.array([0, 0, 1, 1, 2, 2])
    assert count_confusions(query, np.array([1, 0, 3, 2, 5, 4]), label) is None
    assert count_confusions(query, np.full(6, -1), label) is None


def test_many_classes_take_little_memory():
    n = 20_000
    label = np.arange(n) // 2
    found = count_confusions(
        np.arange(n), np.roll(np.arange(n), 2), label, np.random.default_rng(0).normal(size=(n // 2, 8))
    )
    assert len(found.classes) == 40 and found.matrix.shape == (40, 40) and len(found.pairs) == 60


@pytest.mark.parametrize("example", [None, (3, 9)])
def test_a_confusion_is_shown_by_queries_that_were_answered_so(example):
    seen = dict.fromkeys([0, 1, 2, 6, 7, 8], Image.new("RGB", (2, 2)))
    pool = Pool("x", "test", np.arange(10), np.repeat([0, 1], 5), ("a", "b"), images=seen)
    near = np.array([[1], [7], [0], [9], [3], [6], [5], [5], [5], [8]])
    ours, theirs = examples(Confused(0, 1, 2, 0.4, example), pool, np.array(list(seen)), near)
    first = [[], []] if example is None else [[3], [9]]
    assert ours == (first[0] + [1, 0, 2])[:3] and theirs == (first[1] + [7, 6, 8])[:3]


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
