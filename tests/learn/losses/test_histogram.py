import math

import pytest
import torch
from likewise.losses import Histogram
from likewise.types import Pairs, Ref

from likewise.learn.losses.histogram import soft_histograms


def by_hand(z, y, nodes):
    width = 2 / (nodes - 1)
    counts = {True: [0.0] * nodes, False: [0.0] * nodes}
    pairs = {True: 0, False: 0}
    for i in range(len(y)):
        for j in range(i):
            same, s = bool(y[i] == y[j]), float(z[i] @ z[j])
            k = min(max(math.floor((s + 1) / width), 0), nodes - 2)
            w = (s + 1) / width - k
            counts[same][k] += 1 - w
            counts[same][k + 1] += w
            pairs[same] += 1
    below = [sum(counts[True][: r + 1]) / pairs[True] for r in range(nodes)]
    return sum(n * b for n, b in zip(counts[False], below)) / pairs[False]


@pytest.mark.parametrize("nodes", [65, 11, 2, 150])
def test_by_hand(golden, nodes):
    for z in (golden.z, golden.half):
        found = Histogram(nodes=nodes)(z, golden.y).mean().item()
        assert math.isclose(found, by_hand(z, golden.y, nodes), rel_tol=1e-10)


@pytest.mark.parametrize("nodes", [65, 11])
def test_golden(golden, nodes):
    each = Histogram(nodes=nodes)(golden.z, golden.y)
    torch.testing.assert_close(each, golden.each[f"histogram_{nodes}"], rtol=0, atol=1e-8)
    assert math.isclose(each.mean().item(), golden.value[f"histogram_{nodes}"], abs_tol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nodes", [11, 65, 100])
def test_no_mass_is_lost_in_the_worst_case(nodes, dtype):
    """Every negative above every positive costs 1, whatever the width of a bin."""
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=dtype).repeat(6, 1)
    y = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    each = Histogram(nodes=nodes)(z, y)  # positives all at -1; negatives half at -1, half at 1: all at or above
    torch.testing.assert_close(each.mean(), torch.ones((), dtype=dtype))


def test_gradients_flow_through_everybodys_positives(golden):
    z = golden.z.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: Histogram(nodes=5)(z, golden.y), z)
    Histogram(nodes=5)(z, golden.y)[0].backward()
    others = golden.y != golden.y[0]
    by_negatives_alone = golden.z[0] * (z.grad[others] @ golden.z[0])[:, None]
    assert not torch.allclose(z.grad[others], by_negatives_alone)


def test_a_reference_without_the_batch(golden):
    """No `own`: every pair counts, block after block."""
    ref = Ref(golden.half, golden.y)
    loss = Histogram(nodes=5)
    found = loss(golden.z, golden.y, ref)
    whole = torch.cat([loss(golden.z[i : i + 1], golden.y[i : i + 1], ref) for i in range(12)])
    assert found.shape == whole.shape and torch.isfinite(found).all() and not torch.allclose(found, whole)
    wide = Ref(golden.half.repeat(4000, 1), golden.y.repeat(4000))  # several blocks of rows; shares stay what they are
    torch.testing.assert_close(loss(golden.z, golden.y, wide), found)


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
