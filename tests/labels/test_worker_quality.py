import numpy as np
import pytest
import torch

from likewise.labels.annotators import cast_ballots, fit_workers
from likewise.labels.worker_quality import confusion_counts, worker_quality


@pytest.fixture
def voted():
    rng = np.random.default_rng(1)
    y, accuracy = rng.integers(0, 3, 500), np.array([0.95, 0.8, 0.5])
    row, worker = np.arange(500).repeat(3), np.tile(np.arange(3), 500)
    right = rng.random(1500) < accuracy[worker]
    vote = np.where(right, y[row], (y[row] + 1) % 3)  # every wrong vote is for the next class
    return y, cast_ballots(*map(torch.as_tensor, (row, worker, vote)), 500, 3, 3), right.reshape(500, 3).mean(0)


def test_accuracy_and_its_interval(voted):
    _, votes, truth = voted
    _, q, _ = fit_workers(votes)
    found = worker_quality(votes, q)
    assert found.votes.tolist() == [500, 500, 500]
    assert np.abs(found.accuracy.numpy() - truth).max() < 0.05
    assert ((found.low < found.accuracy) & (found.accuracy < found.high)).all()
    wide = (found.high - found.low).tolist()
    assert 0.01 < wide[0] < wide[2] < 0.2


def test_disagreement_and_the_most_frequent_confusion_by_hand():
    votes = cast_ballots(*map(torch.tensor, ([0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [0, 0, 1, 1, 1])), 2, 3, 2)
    q = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    found = worker_quality(votes, q)
    torch.testing.assert_close(found.disagreement, torch.tensor([1 / 3, 1 / 3, 1.0], dtype=torch.float64))
    assert found.confused_from.tolist() == [-1, -1, 0] and found.confused_to.tolist() == [-1, -1, 1]
    assert found.confused.tolist() == [0, 0, 1]


def test_confusions_of_a_worker(voted):
    """Worker 2 is right in half of the votes, and every wrong vote is for the next class."""
    y, votes, _ = voted
    true = torch.nn.functional.one_hot(torch.as_tensor(y), 3).double()
    count = confusion_counts(votes, true)
    for pair, (worker, label) in enumerate(zip(votes.pair_worker.tolist(), votes.pair_label.tolist())):
        mine = (votes.worker == worker) & (votes.label == label)
        by_hand = [int((mine & (torch.as_tensor(y)[votes.row] == c)).sum()) for c in range(3)]
        assert count[pair].tolist() == by_hand and by_hand[(label + 1) % 3] == 0


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_the_interval_covers_the_accuracy_of_95_percent_of_the_workers(spread):
    """1,000 workers with 48 votes each and known labels; the tolerance is 2.5 standard errors of a share of 0.95."""
    rng = np.random.default_rng(2)
    accuracy = rng.uniform(0.8 - spread, 0.8 + spread, 1000)
    row, worker = np.tile(np.arange(48), 1000), np.arange(1000).repeat(48)
    vote = (rng.random(len(row)) > accuracy[worker]).astype(int)  # class 0 is right
    votes = cast_ballots(*map(torch.as_tensor, (row, worker, vote)), 48, 1000, 2)
    found = worker_quality(votes, torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(48, 2))
    inside = (found.low.numpy() <= accuracy) & (accuracy <= found.high.numpy())
    assert abs(inside.mean() - 0.95) < 2.5 * (0.95 * 0.05 / 1000) ** 0.5
