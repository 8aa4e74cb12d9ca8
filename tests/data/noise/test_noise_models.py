"""Noise models of single labels and of sets of labels: which labels become wrong, and what they become."""

import numpy as np
import pytest
from likewise.noise import AddLabels, ClassFrequency, ClassShift, DropLabels, Uniform
from scipy.stats import chisquare

from likewise.core.settings.spec import build
from likewise.data.noise._selection import choose, choose_absent, draw_absent, first_of, number_classes


def test_exactly_the_share_is_wrong_and_other_classes_are_equally_likely():
    y = np.repeat(np.arange(5), 2000)
    noisy = Uniform(share=0.3)(y, np.random.default_rng(0))
    assert (noisy != y).sum() == 3000
    for c in range(5):
        got = np.bincount(noisy[(y == c) & (noisy != y)], minlength=5)
        assert got[c] == 0 and chisquare(np.delete(got, c)).pvalue > 1e-4


def test_bernoulli_varies_around_the_share():
    y = np.repeat(np.arange(4), 500)
    wrong = [(Uniform(share=0.2, exact=False)(y, np.random.default_rng(i)) != y).sum() for i in range(50)]
    assert len(set(wrong)) > 10 and abs(np.mean(wrong) - 400) < 4 * np.sqrt(2000 * 0.2 * 0.8 / 50)


def test_two_classes_swap():
    y = np.array([7, 9] * 10)
    noisy = Uniform(share=1.0)(y, np.random.default_rng(0))
    assert (noisy == 16 - y).all()


def test_labels_of_samples_with_several_become_labels_that_the_sample_lacks():
    sample, label = np.repeat(np.arange(1000), 2), np.tile([0, 1], 1000)
    label[1::4] += 1  # pairs 0, 1 and 0, 2
    label[2::4] += 3  # pairs 3, 1
    given = {*zip(sample.tolist(), label.tolist())}
    same, noisy = Uniform(share=0.3).change_labels(sample, label, np.random.default_rng(0))
    assert np.array_equal(same, sample) and (noisy != label).sum() == 600
    found = {*zip(sample.tolist(), noisy.tolist())}
    assert len(found) == 2000 and len(found - given) == 600


FEW = np.array([0, 0, 1, 2, 2]), np.array([5, 6, 5, 6, 9])
MORE = np.array([0, 0, 0, 1, 2, 2]), np.array([5, 6, 7, 5, 6, 7])
"""Samples and their labels."""


def test_labels_that_a_sample_lacks_are_added():
    for seed in range(20):
        given = np.append(FEW[0], 3), np.append(FEW[1], 7)
        sample, label = AddLabels(share=0.4).change_labels(*given, np.random.default_rng(seed))
        pairs = [*zip(sample.tolist(), label.tolist())]
        assert len(pairs) == len(set(pairs)) == 8 and pairs[:5] == [*zip(*map(np.ndarray.tolist, FEW))]


def test_every_label_is_as_likely():
    sample, label = np.arange(5000), np.arange(5000) % 5
    gets, added = (
        column[5000:] for column in AddLabels(share=1.0).change_labels(sample, label, np.random.default_rng(0))
    )
    assert sorted(gets.tolist()) == sample.tolist() and (added != label[gets]).all()
    for one in range(5):
        assert chisquare(np.delete(np.bincount(added[label[gets] == one], minlength=5), one)).pvalue > 1e-4


def test_exactly_the_share_is_missing_and_every_sample_keeps_a_label():
    for seed in range(20):
        sample, label = DropLabels(share=0.5).change_labels(*MORE, np.random.default_rng(seed))
        assert len(sample) == 3 and set(sample.tolist()) == {0, 1, 2}
        assert {*zip(sample.tolist(), label.tolist())} < {*zip(*map(np.ndarray.tolist, MORE))}


def test_every_label_of_a_sample_is_as_likely_to_be_missing():
    sample, label = np.repeat(np.arange(3000), 3), np.tile(np.arange(3), 3000)
    left = DropLabels(share=1 / 3).change_labels(sample, label, np.random.default_rng(0))[1]
    assert np.abs(np.bincount(left) - 2000).max() < 5 * np.sqrt(3000 * 2 / 9)


def test_the_formula_by_hand():
    y = np.repeat(np.arange(13), 4) * 10 + 1  # numbers with gaps: places count
    noisy = ClassShift(share=1.0)(y, np.random.default_rng(0))
    for true, now in zip((y - 1) // 10, (noisy - 1) // 10, strict=True):
        assert now == (true + 5 if true + 5 <= 12 else true - 5)


def test_a_share_of_them():
    y = np.repeat(np.arange(6), 50).astype(np.int32)
    noisy = ClassShift(share=0.1, shift=3)(y, np.random.default_rng(0))
    assert (noisy != y).sum() == 30 and noisy.dtype == np.int32
    counts = {int((ClassShift(0.1, 3, exact=False)(y, np.random.default_rng(s)) != y).sum()) for s in range(8)}
    assert len(counts) > 2


def test_the_least_number_of_classes_for_a_shift():
    assert (ClassShift(share=1.0)(np.arange(10), np.random.default_rng(0)) == (np.arange(10) + 5) % 10).all()


SIZES = [100, 400, 300, 200, 50]
Y = np.random.default_rng(0).permutation(np.repeat([2, 4, 6, 8, 10], SIZES))
LARGE, SMALL = {4, 6, 8}, {10, 2, 8}  # half of five classes, rounded up


@pytest.mark.parametrize(("side", "group"), [("large", LARGE), ("small", SMALL)])
@pytest.mark.parametrize("restrict", ["target", "source", "both"])
def test_who_becomes_what(side, group, restrict):
    noisy = ClassFrequency(share=0.2, side=side, restrict=restrict)(Y, np.random.default_rng(1))
    wrong = noisy != Y
    assert wrong.sum() == 210
    outside = set(np.unique(Y)) - group
    assert set(noisy[wrong]) <= group or restrict == "source"
    assert set(Y[wrong]) <= group or restrict == "target"
    if restrict == "target":
        assert set(Y[wrong]) & outside
    if restrict == "source":
        assert set(noisy[wrong]) & outside


def test_every_label_of_the_group_is_as_likely():
    y = np.repeat(np.arange(5), [4000, 3000, 3000, 100, 100])
    noisy = ClassFrequency(share=0.5)(y, np.random.default_rng(0))
    for true in range(5):
        got = np.bincount(noisy[(y == true) & (noisy != y)], minlength=5)
        others = [c for c in (0, 1, 2) if c != true]
        assert got.sum() == got[others].sum() and chisquare(got[others]).pvalue > 1e-4


def test_the_expected_share_is_that_of_all_samples():
    wrong = [
        (ClassFrequency(0.2, restrict="source", exact=False)(Y, np.random.default_rng(s)) != Y).sum() for s in range(40)
    ]
    assert len(set(wrong)) > 5 and abs(np.mean(wrong) - 210) < 4 * np.sqrt(210 / 40)


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


def test_data_that_a_model_cannot_change(refused):
    rng, one_class = np.random.default_rng(0), np.zeros(4, np.int64)
    every = np.zeros(3, np.int64), np.arange(3)  # a sample with all labels
    refused(
        (lambda: number_classes("X", one_class, 0.5), "X: .* at least two classes, got 1"),
        (lambda: Uniform(share=0.5)(one_class, rng), "at least two classes, got 1"),
        (lambda: Uniform(share=0.3).change_labels(*every, rng), "is 1 labels, but only 0"),
        (lambda: AddLabels(share=1).change_labels(*FEW, rng), "share=1 is 5 labels, but only 3"),
        (lambda: AddLabels()(np.arange(3), rng), "AddLabels: .* several labels"),
        (lambda: DropLabels(share=0.9).change_labels(*MORE, rng), "is 5 labels, but only 3 of 6"),
        (lambda: DropLabels()(np.arange(3), rng), "DropLabels: .* several labels"),
        (lambda: ClassShift(share=0.1)(np.arange(9), rng), "at least 10 classes, got 9"),
        (lambda: ClassShift().change_labels(*FEW, rng), "ClassShift: needs one label per sample"),
        (lambda: build("ClassFrequency(side='big')"), "side must be 'large' or 'small', got 'big'"),
        (lambda: ClassFrequency(group=0.2)(Y, rng), r"group=0\.2 of 5 classes is one class"),
        (lambda: ClassFrequency(0.5, side="small", restrict="both")(Y, rng), "525 samples, but the group has 350"),
    )
