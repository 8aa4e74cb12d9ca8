import numpy as np
import pytest
import torch
from likewise.types import Embedded, LikewiseError

from likewise.learn.samplers._embedding_bank import EmbeddingBank


def embedded(z):
    return Embedded(z, torch.zeros(len(z), dtype=torch.int64), torch.arange(len(z)))


def filled(rows=4):
    bank = EmbeddingBank("Mine", rows)
    bank.start(lambda: embedded(torch.arange(2.0 * rows).reshape(rows, 2)))
    return bank


def test_every_step_overwrites_the_rows_of_its_batch():
    bank = filled()
    z = torch.tensor([[9.0, 9.0], [8.0, 8.0]])
    bank.observe(z, torch.tensor([3, 1]))
    z.zero_()  # what the step does with its tensor later changes nothing
    bank.observe(torch.tensor([[7.0, 7.0], [5.0, 5.0], [6.0, 6.0]]), torch.tensor([1, 2, 2]))
    assert bank.read().tolist() == [[0, 1], [7, 7], [6, 6], [9, 9]]


def test_sixteen_bit_embeddings_are_stored_in_float32():
    bank = filled()
    z = torch.tensor([[0.1, 0.2]], dtype=torch.bfloat16)
    bank.observe(z, torch.tensor([0]))
    assert bank.read().dtype == np.float32
    assert bank.read()[0].tolist() == z.float()[0].tolist()
    assert bank.state_dict()["bank"].dtype == torch.float32


def test_a_pass_is_chosen_once_from_the_embeddings_of_its_start():
    bank, seen = filled(), []

    def choose(z, number):
        seen.append((number, z.copy()))
        return [[number, 0], [1, 2]]

    assert bank.epoch_batches(0, choose) == [[0, 0], [1, 2]]
    bank.observe(torch.tensor([[9.0, 9.0]]), torch.tensor([0]))
    assert bank.epoch_batches(0, choose) == [[0, 0], [1, 2]]
    assert bank.epoch_batches(1, choose) == [[1, 0], [1, 2]]
    assert [n for n, _ in seen] == [0, 1]
    assert seen[0][1][0].tolist() == [0, 1] and seen[1][1][0].tolist() == [9, 9]


def test_a_state_brings_back_bank_and_batches_and_is_not_filled_again():
    bank = filled()
    bank.epoch_batches(2, lambda z, number: [[0, 1]])
    bank.observe(torch.tensor([[9.0, 9.0]]), torch.tensor([0]))
    state = bank.state_dict()
    bank.observe(torch.tensor([[5.0, 5.0]]), torch.tensor([0]))
    bank.read()
    late = EmbeddingBank("Mine", 4)
    late.load_state_dict(state)
    late.start(lambda: pytest.fail("filled again"))
    assert late.read()[0].tolist() == [9, 9]
    assert late.epoch_batches(2, lambda z, number: pytest.fail("chosen again")) == [[0, 1]]
    late.load_state_dict(EmbeddingBank("Mine", 4).state_dict())  # one that was never started can still be
    late.start(lambda: embedded(torch.ones(4, 2)))
    assert late.read().tolist() == [[1, 1]] * 4


def test_what_cannot_work_is_named():
    with pytest.raises(LikewiseError, match=r"Mine: the sampler needs embeddings .* call start\(embed\)"):
        EmbeddingBank("Mine", 4).epoch_batches(0, lambda z, number: [])
    with pytest.raises(LikewiseError, match="Mine: start must get embeddings of all 5 training rows, got 4"):
        EmbeddingBank("Mine", 5).start(lambda: embedded(torch.ones(4, 2)))
    bank = filled()
    bank.observe(torch.tensor([[np.nan, 1.0], [np.inf, 1.0]]), torch.tensor([0, 3]))
    with pytest.raises(
        LikewiseError, match="Mine: embeddings must be finite, got 2 rows with NaN or infinity; lower lr"
    ):
        bank.epoch_batches(0, lambda z, number: [])
