"""What samplers share that choose batches by embeddings: the latest embedding of every row, and their arguments."""

from collections import Counter

import numpy as np
import pytest
import torch
from likewise.samplers import DistanceMatching, FrechetMatching, GreedyCoreset
from likewise.types import Embedded, LikewiseError

from likewise.learn.samplers._embedding_sampler import EmbeddingSampler

KINDS = [DistanceMatching, FrechetMatching, GreedyCoreset]


class Mine(EmbeddingSampler):
    """Two batches, the first with the number of the epoch. Keeps what it was shown."""

    def __init__(self, rows=4):
        super().__init__(np.zeros(rows, np.int64), 2, 2, "error", None, 0)
        self.seen = []

    def _choose(self, z, number):
        self.seen.append((number, z.copy()))
        return [[number, 0], [1, 2]]


def embedded(z):
    return Embedded(z, torch.zeros(len(z), dtype=torch.int64), torch.arange(len(z)))


def filled():
    sampler = Mine()
    sampler.start(lambda: embedded(torch.arange(8.0).reshape(4, 2)))
    return sampler


def test_every_step_overwrites_the_rows_of_its_batch():
    sampler = filled()
    z = torch.tensor([[9.0, 9.0], [8.0, 8.0]])
    sampler.observe(z, torch.tensor([3, 1]))
    z.zero_()  # what the step does with its tensor later changes nothing
    sampler.observe(torch.tensor([[7.0, 7.0], [5.0, 5.0], [6.0, 6.0]]), torch.tensor([1, 2, 2]))
    assert sampler.latest().tolist() == [[0, 1], [7, 7], [6, 6], [9, 9]]


def test_sixteen_bit_embeddings_are_stored_in_float32():
    sampler, z = filled(), torch.tensor([[0.1, 0.2]], dtype=torch.bfloat16)
    sampler.observe(z, torch.tensor([0]))
    assert sampler.latest().dtype == np.float32 and sampler.latest()[0].tolist() == z.float()[0].tolist()
    assert sampler.state_dict()["bank"].dtype == torch.float32


def test_an_epoch_is_chosen_once_from_the_embeddings_of_its_start():
    sampler = filled()
    assert sampler.epoch_batches(0) == [[0, 0], [1, 2]]
    sampler.observe(torch.tensor([[9.0, 9.0]]), torch.tensor([0]))
    assert sampler.epoch_batches(0) == [[0, 0], [1, 2]]
    assert sampler.epoch_batches(1) == [[1, 0], [1, 2]]
    assert [(number, z[0].tolist()) for number, z in sampler.seen] == [(0, [0, 1]), (1, [9, 9])]


def test_a_state_brings_back_embeddings_and_batches_and_is_not_filled_again():
    sampler = filled()
    sampler.epoch_batches(2)
    sampler.observe(torch.tensor([[9.0, 9.0]]), torch.tensor([0]))
    state = sampler.state_dict()
    sampler.observe(torch.tensor([[5.0, 5.0]]), torch.tensor([0]))
    sampler.latest()
    late = Mine()
    late.load_state_dict(state)
    late.start(lambda: pytest.fail("filled again"))
    assert late.latest()[0].tolist() == [9, 9]
    assert late.epoch_batches(2) == [[2, 0], [1, 2]] and not late.seen
    late.load_state_dict(Mine().state_dict())  # one that was never started can still be
    late.start(lambda: embedded(torch.ones(4, 2)))
    assert late.latest().tolist() == [[1, 1]] * 4


def test_what_cannot_work_is_named():
    with pytest.raises(LikewiseError, match=r"Mine: .*call start\(embed\)"):
        Mine().epoch_batches(0)
    with pytest.raises(LikewiseError, match="Mine: .* all 5 training rows, got 4"):
        Mine(5).start(lambda: embedded(torch.ones(4, 2)))
    sampler = filled()
    sampler.observe(torch.tensor([[np.nan, 1.0], [np.inf, 1.0]]), torch.tensor([0, 3]))
    with pytest.raises(LikewiseError, match="Mine: .*got 2 rows with NaN or infinity; lower lr"):
        sampler.epoch_batches(0)


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_that_cannot_work(kind):
    labels = np.repeat(np.arange(20), 10)
    for settings, says in (
        ({"batch": 5}, "batch must be a multiple"),
        ({"batch": 20, "pool": 10}, "pool must be at least batch"),
        ({"batch": 202}, "got batch=202 with 200"),
    ):
        with pytest.raises(LikewiseError, match=f"{kind.__name__}: .*{says}"):
            kind(labels, **settings)
    with pytest.raises(LikewiseError, match=rf"lonely='skip' in {kind.__name__}"):
        kind(np.array([0, 0, 1, 1, 2]), batch=2)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_have_different_rows_and_so_many_of_a_class(kind, started):
    """Also where all embeddings are equal."""
    labels, rng = np.repeat(np.arange(20), 10), np.random.default_rng(0)
    for z in (rng.normal(size=(200, 8)), np.ones((200, 3))):
        for batch in started(kind, labels, z, batch=24, per_class=4, pool=80).epoch_batches(0):
            counts = set(Counter(labels[batch].tolist()).values())
            assert len(set(batch)) == 24 and (counts == {4} or (kind is GreedyCoreset and counts <= {4, 8}))
