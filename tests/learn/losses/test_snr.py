import math
import statistics

import pytest
import torch
from likewise.contracts import Miner
from likewise.losses import SNR
from likewise.types import Ref, Tuples


def ratio(a, b):
    return statistics.pvariance([p - q for p, q in zip(a, b)]) / statistics.pvariance(a)


def by_hand(z, triplets, margin, penalty, pull=None, count="active"):
    rows, each = z.tolist(), []
    for k, (a, p, n) in enumerate(triplets):
        near = ratio(rows[a], rows[p]) if pull is None or pull[k] else 0.0
        each.append(max(0.0, near - ratio(rows[a], rows[n]) + margin))
    active = max(1, sum(v > 0 or count == "all" for v in each))
    return torch.tensor(
        [v * len(each) / active + penalty * abs(sum(rows[a])) for v, (a, _, _) in zip(each, triplets)],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("count", ["active", "all"])
@pytest.mark.parametrize(("margin", "penalty"), [(0.2, 0.005), (0.7, 0.0)])
def test_by_hand(golden, margin, penalty, count):
    each = SNR(margin=margin, penalty=penalty, miner=golden.miner, count=count)(golden.z, golden.y)
    torch.testing.assert_close(each, by_hand(golden.z, golden.miner.triplets, margin, penalty, count=count))


def test_golden(golden):
    each = SNR(penalty=0.0, miner=golden.miner)(golden.z, golden.y)
    assert math.isclose(each.mean().item(), golden.value["snr_active"], abs_tol=1e-8)
    active = (each > 0).sum().item()
    torch.testing.assert_close(each * active / 12, golden.each["snr_all"], rtol=0, atol=1e-8)
    assert math.isclose(each.mean().item() * active / 12, golden.value["snr_all"], abs_tol=1e-8)


class Swapped(Miner):
    """Every second anchor pushes a class mate and pulls nobody."""

    def __init__(self, triplets):
        self.triplets = [(a, p, p) if a % 2 else (a, p, n) for a, p, n in triplets]

    def __call__(self, sim, pairs, dim, margin=None):
        a, p, n = torch.tensor(self.triplets).T
        return Tuples(a, p, n, torch.ones(len(a), dtype=torch.bool), a % 2 == 0)


def test_a_swapped_triplet_pulls_nobody(golden):
    miner = Swapped(golden.miner.triplets)
    pull = [a % 2 == 0 for a, _, _ in miner.triplets]
    each = SNR(margin=2.5, penalty=0.0, miner=miner)(golden.z, golden.y)
    torch.testing.assert_close(each, by_hand(golden.z, miner.triplets, 2.5, 0.0, pull))
    assert (each[1::2] > 0).any()


def test_no_active_triplet_gives_zero(golden):
    z = torch.nn.functional.one_hot(golden.y, 8).double().requires_grad_()
    each = SNR(penalty=0.0)(z, golden.y)
    each.mean().backward()
    assert (each == 0).all() and (z.grad == 0).all()


def test_equal_coordinates_have_no_variance_but_a_gradient(golden):
    z = golden.z.clone()
    z[0] = 8**-0.5
    z.requires_grad_()
    SNR(miner=golden.miner)(z, golden.y).mean().backward()
    assert torch.isfinite(z.grad).all()


def test_a_reference_of_other_samples(golden):
    batch, y, others = golden.z[[0, 6]], golden.y[[0, 6]], [1, 7]
    # One mate and one stranger each.
    each = SNR(margin=3.0, penalty=0.0)(batch, y, Ref(golden.z[others], golden.y[others]))
    wanted = by_hand(golden.z[[0, 6, 1, 7]], [(0, 2, 3), (1, 3, 2)], 3.0, 0.0)
    torch.testing.assert_close(each, wanted)
