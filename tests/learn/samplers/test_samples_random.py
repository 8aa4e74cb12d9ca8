from collections import Counter

import numpy as np
import pytest
from likewise.samplers import SamplesRandom
from likewise.types import LikewiseError

LABELS = np.repeat(np.arange(100), 59)


def test_the_last_is_another_image_of_a_class_drawn_before():
    sampler = SamplesRandom(LABELS, batch=112)
    assert len(sampler) == 5900 // 112
    for batch in sampler.epoch_batches(0) + sampler.epoch_batches(1):
        assert len(set(batch)) == 112
        assert LABELS[batch[-1]] in LABELS[batch[:-1]]


def test_classes_are_drawn_uniformly_with_replacement():
    """Of 111 draws among 100 classes, 100 (1 - .99^111) = 67 are distinct; about 36 classes stand alone."""
    batches = SamplesRandom(LABELS).epoch_batches(0)
    counts = [Counter(LABELS[b].tolist()) for b in batches]
    assert np.mean([len(c) for c in counts]) == pytest.approx(67.2, abs=1.5)
    assert np.mean([sum(v == 1 for v in c.values()) for c in counts]) == pytest.approx(36, abs=2)
    uneven = np.repeat(np.arange(2), [4, 396])
    rows = np.concatenate(SamplesRandom(uneven, batch=4).epoch_batches(0))
    assert np.mean(uneven[rows] == 0) == pytest.approx(0.5, abs=0.1)  # over classes, not over images


def test_with_replacement_an_image_may_be_its_own_mate():
    labels = np.repeat(np.arange(50), 2)
    same = {}
    for flag in (False, True):
        batches = sum((SamplesRandom(labels, batch=2, with_replacement=flag).epoch_batches(i) for i in range(20)), [])
        assert all(labels[a] == labels[b] for a, b in batches)
        same[flag] = np.mean([a == b for a, b in batches])
    assert same[False] == 0 and same[True] == pytest.approx(0.5, abs=0.06)


def test_a_small_class_drawn_often_repeats():
    labels = np.repeat(np.arange(2), [2, 10])
    repeated = 0
    for number in range(10):
        for batch in SamplesRandom(labels, batch=9).epoch_batches(number):
            count = Counter(labels[batch].tolist())[0]
            assert len({r for r in batch if labels[r] == 0}) == min(count, 2)
            repeated += count > 2
    assert repeated


def test_bad_arguments():
    with pytest.raises(LikewiseError, match=f"batch=9999 .*there are {len(LABELS)}"):
        SamplesRandom(LABELS, batch=9999)
    assert len(SamplesRandom(LABELS, batch=9999, with_replacement=True)) == 1
    lonely = np.array([0, 0, 1])
    with pytest.raises(LikewiseError, match=r"lonely='skip' in SamplesRandom"):
        SamplesRandom(lonely, batch=2)
    assert {r for i in range(9) for b in SamplesRandom(lonely, 2, "skip").epoch_batches(i) for r in b} == {0, 1}
