from collections import Counter

import numpy as np
import pytest
from likewise.samplers import GreedyCoreset

from likewise.learn.samplers.greedy_coreset import centres


def by_hand(z, count, first):
    """Greedy k-centre, one distance at a time."""
    chosen = [first]
    while len(chosen) < count:
        farthest, best = -1, -1.0
        for i in range(len(z)):
            near = min(sum((a - b) ** 2 for a, b in zip(z[i].tolist(), z[c].tolist())) ** 0.5 for c in chosen)
            if near > best:
                farthest, best = i, near
        chosen.append(farthest)
    return chosen


def spread(z, rows):
    """Mean distance to the nearest other."""
    apart = np.linalg.norm(z[rows][:, None] - z[rows][None], axis=2) + 9 * np.eye(len(rows))
    return apart.min(1).mean()


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 16))
    return np.repeat(np.arange(20), 20), (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


def test_centres_by_hand(data):
    _, z = data
    free = np.full(1, 99)
    for first in (0, 7, 33):
        expected = by_hand(z[:60], 12, first)
        assert centres(z[:60], 12, first, np.zeros(60, np.int64), free).tolist() == expected


def test_a_batch_is_centres_of_a_pool_each_with_a_class_mate(data, started):
    labels, z = data
    for batch in started(GreedyCoreset, labels, z, batch=24, per_class=3, pool=512).epoch_batches(
        0
    ):  # the pool is all rows
        chosen = np.array(batch).reshape(8, 3)
        assert (labels[chosen] == labels[chosen[:, :1]]).all() and len(set(batch)) == 24
        assert chosen[:, 0].tolist() == by_hand(z, 8, chosen[0, 0])


def test_the_batches_are_spread_wider_than_random_ones(data, started):
    labels, z = data
    batches = started(GreedyCoreset, labels, z, batch=40, pool=200).epoch_batches(0)
    rng = np.random.default_rng(1)
    chance = np.mean([spread(z, rng.choice(400, 20, replace=False)) for _ in range(50)])
    wide = [spread(z, b[::2]) for b in batches]
    assert min(wide) > chance + 0.05
    assert len(set(map(tuple, batches))) == len(batches) == 10
    wrong = started(GreedyCoreset, labels, z, batch=40, pool=200, published_indices=True).epoch_batches(0)
    assert np.mean([spread(z, sorted(set(b[::2]))) for b in wrong]) == pytest.approx(chance, abs=0.04)


def test_published_centres_come_from_one_list_a_pass(data, started):
    labels, z = data
    for flag in (True, False):
        sampler = started(GreedyCoreset, labels, z, batch=40, pool=40, published_indices=flag)
        for number in (0, 1):
            seeds = {r for b in sampler.epoch_batches(number) for r in b[::2]}
            assert (len(seeds) <= 40) == flag


def test_no_image_comes_twice_where_that_can_be_avoided(started):
    """Small far-off classes attract all centres; each takes part only while it has images to pair them with."""
    labels = np.repeat(np.arange(12), [2, 3, 3, 2, 20, 20, 2, 2, 3, 3, 20, 20])
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 4)) * np.where(np.bincount(labels)[labels] < 4, 50.0, 0.1)[:, None]
    for batch in started(GreedyCoreset, labels, z, batch=40).epoch_batches(0):
        assert len(set(batch)) == 40
        assert (labels[batch[::2]] == labels[batch[1::2]]).all()
        assert max(Counter(labels[batch].tolist())[c] for c in (0, 1, 2, 3, 6, 7, 8, 9)) == 2
    labels = np.repeat(np.arange(3), [3, 3, 4])  # room for four pairs; five are wanted
    for batch in started(GreedyCoreset, labels, z[:10], batch=10).epoch_batches(0):
        assert all(a != b for a, b in zip(batch[::2], batch[1::2]))


def test_a_class_smaller_than_wanted_repeats_evenly(started):
    for batch in started(
        GreedyCoreset, np.repeat([0, 1], [2, 9]), np.random.default_rng(0).normal(size=(11, 3)), batch=8, per_class=4
    ).epoch_batches(0):
        groups = np.array(batch).reshape(2, 4)
        for group in groups:
            assert len(set(group)) == (2 if group[0] < 2 else 4)
            assert group[0] > 1 or Counter(group.tolist()) == {0: 2, 1: 2}


def test_lonely_classes_are_skipped_or_stand_alone(started):
    labels = np.array([0, 0, 1, 1, 2, 3])
    z = np.random.default_rng(0).normal(size=(6, 3))
    assert set(started(GreedyCoreset, labels, z, batch=4, lonely="skip").epoch_batches(0)[0]) == {0, 1, 2, 3}
    assert len(set(started(GreedyCoreset, labels, z, batch=6, per_class=1).epoch_batches(0)[0])) == 6
