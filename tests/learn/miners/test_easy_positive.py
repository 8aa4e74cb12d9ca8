import pytest
import torch
from likewise.miners import EasyPositive
from likewise.similarity import reference_masks
from pytorch_metric_learning.miners import BatchEasyHardMiner


@pytest.mark.parametrize("negative", ["semi-hard", "hard", "random"])
def test_by_hand(crowd, negative):
    seen = {a: set() for a in range(8)}
    for a, p, n in crowd.draw(EasyPositive(negative=negative), times=200):
        nearest = min(crowd.mates[a], key=lambda j: crowd.d[a][j])
        assert p == nearest
        seen[a].add(n)
    fell_back = 0
    for a, found in seen.items():
        limit = min(crowd.d[a][j] for j in crowd.mates[a])
        beyond = [n for n in crowd.others[a] if crowd.d[a][n] > limit]
        fell_back += not beyond
        if negative == "random":
            assert found == set(crowd.others[a])
        else:
            among = beyond if negative == "semi-hard" and beyond else crowd.others[a]
            assert found == {min(among, key=lambda j: crowd.d[a][j])}
    assert fell_back < 8


def test_semi_hard_falls_back_to_the_nearest_where_nothing_lies_beyond():
    sim = torch.tensor([[1.0, 0.1, 0.9, 0.8], [0.1, 1.0, 0.9, 0.8]])
    pairs = reference_masks(torch.tensor([0, 0]), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]))
    t = EasyPositive()(sim, pairs, 3)
    assert t.n.tolist() == [2, 2] and t.valid.all()


@pytest.mark.parity
def test_same_triplets_as_pytorch_metric_learning(crowd):
    a, p, again, n = BatchEasyHardMiner(pos_strategy="easy", neg_strategy="hard")(crowd.z, crowd.y)
    t = EasyPositive(negative="hard")(crowd.sim, crowd.pairs, 3)
    assert torch.equal(a, again) and torch.equal(a, t.a[t.valid])
    assert torch.equal(p, t.p[t.valid]) and torch.equal(n, t.n[t.valid])
