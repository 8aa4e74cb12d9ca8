from collections import Counter

import numpy as np
import pytest
from likewise.samplers import SamplesPerClass
from likewise.types import LikewiseError

LABELS = np.repeat(np.arange(10), [3, 4, 5, 6, 7, 8, 9, 10, 11, 12])


def test_every_batch_has_distinct_classes_with_so_many_samples_each():
    sampler = SamplesPerClass(LABELS, batch=12, per_class=3)
    assert len(sampler) == 75 // 12
    for batch in sampler.epoch_batches(0) + sampler.epoch_batches(1):
        counts = Counter(LABELS[batch].tolist())
        assert len(counts) == 4 and set(counts.values()) == {3}
        assert len(set(batch)) == 12  # every class here has three samples or more, so none is repeated


def test_classes_and_samples_come_up_evenly():
    labels = np.repeat(np.arange(20), 6)
    sampler = SamplesPerClass(labels, batch=12, per_class=2)
    rows = Counter(sum((b for i in range(3) for b in sampler.epoch_batches(i)), []))
    assert len(rows) == 120 and max(rows.values()) <= 6  # three passes of 120: everyone was seen
    per_class = Counter(labels[r] for r, c in rows.items() for _ in range(c))
    assert max(per_class.values()) - min(per_class.values()) <= 6


def test_a_class_smaller_than_wanted_repeats():
    sampler = SamplesPerClass(np.repeat([0, 1], [2, 9]), batch=8, per_class=4)
    for batch in sampler.epoch_batches(0):
        assert Counter(np.repeat([0, 1], [2, 9])[batch].tolist()) == {0: 4, 1: 4}
        assert set(batch) & {0, 1} == {0, 1}


def test_lonely_classes_are_an_error_or_left_out():
    labels = np.array([0, 0, 1, 1, 2, 3])
    with pytest.raises(LikewiseError, match=r"2 of 4 classes have one \(first: class 2\).*lonely='skip'"):
        SamplesPerClass(labels, batch=4, per_class=2)
    sampler = SamplesPerClass(labels, batch=4, per_class=2, lonely="skip")
    assert {r for i in range(9) for b in sampler.epoch_batches(i) for r in b} == {0, 1, 2, 3}
    assert {r for b in SamplesPerClass(labels, batch=4, per_class=1).epoch_batches(0) for r in b} <= set(range(6))


def test_bad_arguments(unchecked):
    with pytest.raises(LikewiseError, match="needs 32 classes, but the labels have 10"):
        SamplesPerClass(LABELS, batch=64, per_class=2)
    with pytest.raises(LikewiseError, match="multiple of per_class, got batch=10, per_class=4"):
        SamplesPerClass(LABELS, batch=10, per_class=4)


def test_with_replacement_a_class_may_fill_two_places_and_an_image_come_twice():
    """56 draws among 100 classes: 100 (1 - .99^56) = 43 distinct ones. Of N draws, 1 - 1/e of N images are seen."""
    labels = np.repeat(np.arange(100), 59)
    sampler = SamplesPerClass(labels, with_replacement=True)
    batches = sampler.epoch_batches(0)
    assert len(batches) == len(sampler) == 52
    assert np.mean([len(set(labels[b])) for b in batches]) == pytest.approx(43, abs=1.5)
    assert len(set(sum(batches, []))) / 5900 == pytest.approx(0.63, abs=0.02)
    assert sum(a == b for batch in batches for a, b in zip(batch[::2], batch[1::2])) > 20
    assert all((labels[b[::2]] == labels[b[1::2]]).all() for b in batches)
    few = SamplesPerClass(LABELS, batch=64, per_class=2, with_replacement=True)  # more places than classes
    assert len(few.epoch_batches(0)[0]) == 64
