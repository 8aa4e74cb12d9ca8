import numpy as np
import pytest
from likewise.noise import DropLabels
from likewise.types import LikewiseError

SAMPLE, LABEL = np.array([0, 0, 0, 1, 2, 2]), np.array([5, 6, 7, 5, 6, 7])


def test_exactly_the_share_is_missing_and_every_sample_keeps_a_label():
    for seed in range(20):
        sample, label = DropLabels(share=0.5).change_labels(SAMPLE, LABEL, np.random.default_rng(seed))
        assert len(sample) == 3 and set(sample.tolist()) == {0, 1, 2}
        assert {*zip(sample.tolist(), label.tolist())} < {*zip(SAMPLE.tolist(), LABEL.tolist())}


def test_every_label_of_a_sample_is_as_likely_to_be_missing():
    sample, label = np.repeat(np.arange(3000), 3), np.tile(np.arange(3), 3000)
    left = DropLabels(share=1 / 3).change_labels(sample, label, np.random.default_rng(0))[1]
    assert np.abs(np.bincount(left) - 2000).max() < 5 * np.sqrt(3000 * 2 / 9)


def test_bad_arguments():
    with pytest.raises(LikewiseError, match="is 5 labels, but only 3 of 6"):
        DropLabels(share=0.9).change_labels(SAMPLE, LABEL, np.random.default_rng(0))
    with pytest.raises(LikewiseError, match="DropLabels: .* several labels"):
        DropLabels()(np.arange(3), np.random.default_rng(0))
