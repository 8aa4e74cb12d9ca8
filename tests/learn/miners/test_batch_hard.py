import pytest
import torch
from likewise.miners import BatchHard
from pytorch_metric_learning.miners import BatchHardMiner


def test_by_hand(crowd):
    t = BatchHard()(crowd.sim, crowd.pairs, 3)
    assert t.valid.tolist() == [True] * 8 + [False]
    for a in range(8):
        assert t.p[a] == max(crowd.mates[a], key=lambda j: crowd.d[a][j])
        assert t.n[a] == min(crowd.others[a], key=lambda j: crowd.d[a][j])


@pytest.mark.parity
def test_same_triplets_as_pytorch_metric_learning(crowd):
    a, p, n = BatchHardMiner()(crowd.z, crowd.y)
    t = BatchHard()(crowd.sim, crowd.pairs, 3)
    assert torch.equal(a, t.a[t.valid]) and torch.equal(p, t.p[t.valid]) and torch.equal(n, t.n[t.valid])
