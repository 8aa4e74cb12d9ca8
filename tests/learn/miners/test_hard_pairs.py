import pytest
import torch
from likewise.miners import HardPairs
from likewise.similarity import compare
from pytorch_metric_learning.miners import MultiSimilarityMiner


def batch():
    g = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])
    return torch.nn.functional.normalize(torch.randn(8, 4, generator=g), dim=1), y


def test_by_hand():
    z, y = batch()
    sim, pairs = compare(z, y)
    found = HardPairs(eps=0.1)(sim, pairs, 4)
    for i in range(8):
        pos = [j for j in range(8) if j != i and y[j] == y[i]]
        neg = [j for j in range(8) if y[j] != y[i]]
        nearest = max(float(sim[i, j]) for j in neg)
        furthest = min([float(sim[i, j]) for j in pos], default=float("inf"))
        for j in range(8):
            assert bool(found.pos[i, j]) == (j in pos and float(sim[i, j]) - 0.1 < nearest)
            assert bool(found.neg[i, j]) == (j in neg and float(sim[i, j]) + 0.1 > furthest)
    assert not found.neg[7].any()  # no positive, so nothing to be harder than


@pytest.mark.parity
def test_same_pairs_as_pytorch_metric_learning():
    z, y = batch()
    a1, p, a2, n = MultiSimilarityMiner(epsilon=0.1)(z, y)
    found = HardPairs(eps=0.1)(*compare(z, y), 4)
    pos, neg = torch.zeros(8, 8, dtype=torch.bool), torch.zeros(8, 8, dtype=torch.bool)
    pos[a1, p], neg[a2, n] = True, True
    assert torch.equal(found.pos, pos) and torch.equal(found.neg, neg)
