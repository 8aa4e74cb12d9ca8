import numpy as np
import pytest
from likewise.noise import AddLabels
from likewise.types import LikewiseError
from scipy.stats import chisquare

SAMPLE, LABEL = np.array([0, 0, 1, 2, 2]), np.array([5, 6, 5, 6, 9])


def test_labels_that_a_sample_lacks_are_added():
    for seed in range(20):
        given = np.append(SAMPLE, 3), np.append(LABEL, 7)
        sample, label = AddLabels(share=0.4).change_labels(*given, np.random.default_rng(seed))
        pairs = [*zip(sample.tolist(), label.tolist())]
        assert len(pairs) == len(set(pairs)) == 8 and pairs[:5] == [*zip(SAMPLE.tolist(), LABEL.tolist())]


def test_every_label_is_as_likely():
    sample, label = np.arange(5000), np.arange(5000) % 5
    gets, added = (
        column[5000:] for column in AddLabels(share=1.0).change_labels(sample, label, np.random.default_rng(0))
    )
    assert sorted(gets.tolist()) == sample.tolist() and (added != label[gets]).all()
    for one in range(5):
        assert chisquare(np.delete(np.bincount(added[label[gets] == one], minlength=5), one)).pvalue > 1e-4


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="share=1 is 5 labels, but only 3"):
        AddLabels(share=1).change_labels(SAMPLE, LABEL, np.random.default_rng(0))
    with pytest.raises(LikewiseError, match="AddLabels: .* several labels"):
        AddLabels()(np.arange(3), np.random.default_rng(0))
