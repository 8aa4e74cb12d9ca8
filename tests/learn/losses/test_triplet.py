import math

import pytest
import torch
from likewise.losses import Triplet


def by_hand(z, triplets, margin, power):
    each = []
    for a, p, n in triplets:
        pull = math.dist(z[a].tolist(), z[p].tolist()) ** power
        push = math.dist(z[a].tolist(), z[n].tolist()) ** power
        each.append(max(0.0, pull - push + margin))
    return torch.tensor(each, dtype=torch.float64)


@pytest.mark.parametrize("squared", [False, True])
def test_by_hand_and_golden(golden, squared):
    each = Triplet(squared=squared, miner=golden.miner)(golden.z, golden.y)
    torch.testing.assert_close(each, by_hand(golden.z, golden.miner.triplets, 0.2, 2 if squared else 1))
    name = "triplet_squared" if squared else "triplet"
    torch.testing.assert_close(each, golden.each[name], rtol=0, atol=1e-8)
    assert math.isclose(each.mean().item(), golden.value[name], abs_tol=1e-8)


def test_the_mean_is_over_the_anchors_that_have_a_triplet():
    z = torch.nn.functional.normalize(
        torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1
    )
    y = torch.tensor([0, 0, 1, 2, 3])  # three anchors have no class mate
    torch.manual_seed(0)
    each = Triplet(margin=2.0)(z, y)
    assert (each[2:] == 0).all() and (each[:2] > 0).all()
    d = torch.cdist(z, z)
    assert (each[:2] / (5 / 2) <= d[0, 1] - d[:2, 2:].min() + 2.0).all()
