import numpy as np
import pytest
from likewise.noise import Uniform
from likewise.types import LikewiseError
from scipy.stats import chisquare


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


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="at least two classes, got 1"):
        Uniform(share=0.5)(np.zeros(4, np.int64), np.random.default_rng(0))


def test_transition_has_the_probabilities():
    table = Uniform(share=0.3).transition(np.arange(4))
    assert (
        np.diag(table) == pytest.approx(0.7) and table[0, 1:] == pytest.approx(0.1) and table.sum(1) == pytest.approx(1)
    )
    with pytest.raises(LikewiseError, match="among 2 to 4096 classes, got 1"):
        Uniform(share=0.3).transition(np.arange(1))


def test_labels_of_samples_with_several_become_labels_that_the_sample_lacks():
    sample, label = np.repeat(np.arange(1000), 2), np.tile([0, 1], 1000)
    label[1::4] += 1  # pairs 0, 1 and 0, 2
    label[2::4] += 3  # pairs 3, 1
    given = {*zip(sample.tolist(), label.tolist())}
    same, noisy = Uniform(share=0.3).change_labels(sample, label, np.random.default_rng(0))
    assert np.array_equal(same, sample) and (noisy != label).sum() == 600
    found = {*zip(sample.tolist(), noisy.tolist())}
    assert len(found) == 2000 and len(found - given) == 600
    with pytest.raises(LikewiseError, match="is 1 labels, but only 0"):
        Uniform(share=0.3).change_labels(np.zeros(3, np.int64), np.arange(3), np.random.default_rng(0))
