"""The loss of easy-positive mining: by hand, against another library, and the triplets of the paper."""

import math

import pytest
import torch
from likewise.losses import TripletNCA
from likewise.miners import Switch


def by_hand(z, triplets, temperature):
    rows, each = z.tolist(), []
    for a, p, n in triplets:
        near, far = (math.exp(sum(u * v for u, v in zip(rows[a], rows[j])) / temperature) for j in (p, n))
        each.append(-math.log(near / (near + far)))
    return torch.tensor(each, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_by_hand(golden, temperature):
    each = TripletNCA(temperature, golden.miner)(golden.z, golden.y)
    torch.testing.assert_close(each, by_hand(golden.z, golden.miner.triplets, temperature))


def test_it_mines_the_easy_positive_and_the_semi_hard_negative(golden):
    sim, triplets = golden.z @ golden.z.T, []
    for a in range(12):
        mates = [j for j in range(12) if golden.y[j] == golden.y[a] and j != a]
        p = max(mates, key=lambda j: sim[a, j])
        others = [j for j in range(12) if golden.y[j] != golden.y[a]]
        beyond = [j for j in others if sim[a, j] < sim[a, p]]
        triplets.append((a, p, max(beyond or others, key=lambda j: sim[a, j])))
    torch.testing.assert_close(TripletNCA()(golden.z, golden.y), by_hand(golden.z, triplets, 1.0))


def test_anchors_without_a_triplet_do_not_count():
    z, y = torch.eye(3, dtype=torch.float64), torch.tensor([0, 0, 1])
    each = TripletNCA()(z, y)
    assert each[2] == 0 and each.mean().item() == pytest.approx(math.log(2))


def test_a_switched_triplet_pulls_nobody(golden):
    """Without a pull the positive has the cosine 1, and no gradient reaches it."""
    torch.manual_seed(0)
    z = golden.z.clone().requires_grad_()
    loss = TripletNCA(miner=Switch(share=1.0, miner=golden.miner))
    each = loss(z, golden.y)
    assert (each <= math.log(2) + 1e-12).all()  # s_an is at most 1
    each.mean().backward()
    assert torch.isfinite(z.grad).all()
