import math

import torch
from likewise.types import Pairs

from likewise.learn.losses._soft_histograms import soft_histograms


def test_soft_histograms_by_hand():
    place = torch.tensor(
        [[0.0, 0.25, 3.0, 1.5, 2.0], [2.75, 2.75, 0.5, 1.0, 1.0]], dtype=torch.float64, requires_grad=True
    )
    pos = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
    neg = torch.tensor([[0, 0, 0, 1, 0], [0, 1, 1, 1, 0]]).bool()  # the last column is nobody's partner
    near, far = soft_histograms(place, Pairs(pos, neg), 4)
    expected = [[[0.0] * 4 for _ in range(2)] for _ in range(2)]
    for i in range(2):
        for j in range(5):
            x = place[i, j].item()
            for node in range(4):
                share = max(0.0, 1 - abs(x - node))
                expected[0][i][node] += share * pos[i, j].item()
                expected[1][i][node] += share * neg[i, j].item()
    assert near.tolist() == expected[0] and far.tolist() == expected[1]
    (near[0] @ torch.arange(4.0).double() ** 2).backward()  # between nodes k and k + 1 the square's slope is 2k + 1
    assert place.grad[0].tolist() == [1.0, 1.0, 5.0, 0.0, 0.0] and (place.grad[1] == 0).all()


def test_soft_histograms_forget_nothing_where_rounding_leaves_the_range():
    place = torch.tensor([[-1e-7, 0.0, 10.0, 10.000001, 5.0]])
    every = torch.ones(1, 5, dtype=torch.bool)
    near, far = soft_histograms(place, Pairs(every, ~every), 11)
    assert math.isclose(near.sum(), 5, rel_tol=1e-6) and (far == 0).all()
    assert soft_histograms(place * math.nan, Pairs(every, ~every), 11)[0].isnan().any()


def test_weights_by_hand():
    place, weight = torch.tensor([[0.25, 1.0, 1.5]]), torch.tensor([[0.5, 2.0, 1.0]])
    near, _ = soft_histograms(place, Pairs(torch.ones(1, 3).bool(), torch.zeros(1, 3).bool()), 3, weight)
    assert near.tolist() == [[0.375, 0.125 + 2 + 0.5, 0.5]]
