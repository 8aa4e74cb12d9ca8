"""Which samples become wrong: so many, or each with a chance."""

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.data.noise._selection import choose, choose_absent, draw_absent, first_of, number_classes


def test_an_exact_share_is_met_by_different_places():
    places = choose(40, 0.3, True, np.random.default_rng(0))
    assert len(places) == len(set(places.tolist())) == 12 and places.min() >= 0 and places.max() < 40
    assert set(places.tolist()) != set(choose(40, 0.3, True, np.random.default_rng(1)).tolist())


def test_every_place_is_as_likely():
    chosen = np.zeros(20)
    for seed in range(2000):
        chosen[choose(20, 0.25, True, np.random.default_rng(seed))] += 1
    assert np.abs(chosen - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_a_chance_gives_another_count_each_time():
    counts = [len(choose(1000, 0.2, False, np.random.default_rng(seed))) for seed in range(50)]
    assert len(set(counts)) > 10 and abs(np.mean(counts) - 200) < 4 * np.sqrt(1000 * 0.2 * 0.8 / 50)


def test_classes_are_numbered_as_they_are_there():
    classes, place = number_classes("X", np.array([9, 3, 9, 5]), 0.5)
    assert classes.tolist() == [3, 5, 9] and place.tolist() == [2, 0, 2, 1]


def test_bad_input():
    with pytest.raises(LikewiseError, match="X: .* at least two classes, got 1"):
        number_classes("X", np.zeros(3, np.int64), 0.5)
    assert number_classes("X", np.zeros(3, np.int64), 0)[0].tolist() == [0]


def test_absent_labels_are_new_for_their_sample():
    sample, label, labels = np.array([0, 0, 1]), np.array([3, 5, 3]), np.array([3, 5, 8, 9])
    for seed in range(30):
        drawn = draw_absent(np.array([0, 0, 1]), (sample, label), labels, np.random.default_rng(seed))
        assert sorted(drawn[:2]) == [8, 9] and drawn[2] in (5, 8, 9)


def test_first_occurrences():
    assert first_of(np.array([4, 2, 4, 4, 2, 1])).tolist() == [True, True, False, False, False, True]


@pytest.mark.parametrize("exact", [True, False])
def test_a_sample_that_has_most_labels_does_not_stop_the_others(exact):
    """Sample 0 lacks 1 of 5 labels and sample 1 none: of their nine labels, one is chosen at most, each as often."""
    sample, label = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 4]), np.array([0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2])
    counts, rng = np.zeros(12), np.random.default_rng(0)
    for _ in range(2000):
        places = choose_absent("X", sample, label, 0.25, exact, rng)
        assert len(places) == 3 or not exact
        counts[places] += 1
        drawn = draw_absent(sample[places], (sample, label), np.unique(label), rng)
        found = {*zip(sample[places].tolist(), drawn.tolist())}
        assert len(found) == len(places) and not found & {*zip(sample.tolist(), label.tolist())}
    assert counts[4:9].sum() == 0 and counts[:4].std() < 60 and counts[:4].sum() == pytest.approx(counts[9], rel=0.15)
    assert counts.sum() == pytest.approx(6000, rel=0.05)
