from collections import Counter

import numpy as np
import pytest
from likewise.samplers import SamplesPerLabel
from likewise.types import LikewiseError

from likewise.learn.samplers.samples_per_label import _rows_by_label


@pytest.fixture(scope="module")
def made():
    """300 samples with two to five of 20 labels, of which the first ones are frequent; the class of each, and the sets."""
    rng, chance = np.random.default_rng(0), 1 / np.arange(1, 21)
    sets = {
        tuple(sorted(rng.choice(20, rng.integers(2, 6), replace=False, p=chance / chance.sum()))) for _ in range(150)
    }
    sets = sorted(tuple(map(int, one)) for one in sets)
    return rng.integers(0, len(sets), 300), sets


def test_every_sample_shares_a_label_with_another_one_of_its_batch(made):
    labels, sets = made
    sampler = SamplesPerLabel(labels, sets, batch=24, per_label=3)
    assert len(sampler) == 300 // 24
    for batch in sampler.epoch_batches(0) + sampler.epoch_batches(1):
        assert len(set(batch)) == 24
        of = [set(sets[labels[row]]) for row in batch]
        assert all(any(a & b for b in of[:i] + of[i + 1 :]) for i, a in enumerate(of))


def test_labels_come_up_alike_however_rare(made):
    """Rare labels are more frequent in batches than in the data, although their samples have frequent labels too."""
    labels, sets = made
    drawn, given = Counter(), Counter(label for c in labels for label in sets[c])
    sampler = SamplesPerLabel(labels, sets, batch=24, per_label=3)
    for number in range(10):
        for batch in sampler.epoch_batches(number):
            drawn.update(label for row in batch for label in sets[labels[row]])
    often, rare = ([label for label, _ in given.most_common()][i] for i in (0, -1))
    assert drawn[rare] / drawn[often] > 1.4 * given[rare] / given[often]


def test_more_candidates_have_closer_label_sets(made):
    labels, sets = made

    def positives(candidates):
        sampler = SamplesPerLabel(labels, sets, batch=24, per_label=2, candidates=candidates)
        batches = [b for number in range(5) for b in sampler.epoch_batches(number)]
        return np.mean([sampler._share(a, b) >= 0.5 for batch in batches for a in batch for b in batch if a != b])

    assert positives(30) > 1.2 * positives(1)


def test_rows_by_label():
    found = _rows_by_label(np.array([0, 1, 1, 2]), [(0, 2), (1, 2), (3,)])
    assert [one.tolist() for one in found] == [[1, 2], [0, 1, 2]]  # labels 1 and 2; 0 and 3 have a single sample


def test_small_data_and_bad_arguments(made):
    labels, sets = np.array([0, 1, 2, 2]), [(0, 1), (0,), (1,)]
    for batch in SamplesPerLabel(labels, sets, batch=4, per_label=2).epoch_batches(0):
        assert sorted(batch) == [0, 1, 2, 3]
    with pytest.raises(LikewiseError, match="batch=6 .* there are 4; lower"):
        SamplesPerLabel(labels, sets, batch=6, per_label=2)
    with pytest.raises(LikewiseError, match="got one; use SamplesPerClass"):
        SamplesPerLabel(labels)
    with pytest.raises(LikewiseError, match="candidates must be at least per_label - 1"):
        SamplesPerLabel(labels, sets, batch=4, per_label=4, candidates=2)
    with pytest.raises(LikewiseError, match="got batch=5, per_label=2; try"):
        SamplesPerLabel(labels, sets, batch=5, per_label=2)
