import numpy as np
import pytest
from likewise.samplers import Shuffled
from likewise.types import LikewiseError


def test_every_sample_at_most_once_a_pass_and_all_over_time():
    sampler = Shuffled(np.zeros(10, np.int64), batch=4)
    assert len(sampler) == 2
    passes = [sum(sampler.epoch_batches(i), []) for i in range(20)]
    assert all(len(set(p)) == 8 for p in passes)
    assert set(sum(passes, [])) == set(range(10))


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(LikewiseError, match="at most the 10 training samples, got 11"):
        Shuffled(np.zeros(10, np.int64), batch=11)
