import math

import pytest
import torch
from likewise.losses import SupCon
from torch.nn import functional as F

LONELY = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 5])


def by_hand(z, y, temperature):
    each, has = [], 0
    for i in range(len(y)):
        s = [float(z[i] @ z[j]) / temperature for j in range(len(y))]
        mates = [j for j in range(len(y)) if j != i and y[j] == y[i]]
        everybody = sum(math.exp(s[j]) for j in range(len(y)) if j != i)
        each.append(-sum(math.log(math.exp(s[p]) / everybody) for p in mates) / max(1, len(mates)))
        has += bool(mates)
    return torch.tensor(each, dtype=torch.float64) * len(y) / max(1, has)


def nt_xent_by_hand(first, second, temperature):
    """SimCLR's loss of two views a picture, each view against the 2N - 1 others."""
    z = [v.tolist() for v in torch.cat([first, second])]
    size, total = len(first), 0.0
    for i in range(2 * size):
        mate = (i + size) % (2 * size)
        dots = [sum(a * b for a, b in zip(z[i], z[k])) / temperature for k in range(2 * size)]
        total -= math.log(math.exp(dots[mate]) / sum(math.exp(d) for k, d in enumerate(dots) if k != i))
    return total / (2 * size)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_by_hand(golden, temperature):
    for y in (golden.y, LONELY):
        found = SupCon(temperature=temperature)(golden.z, y)
        torch.testing.assert_close(found, by_hand(golden.z, y, temperature))


def test_two_views_of_each_picture_make_it_nt_xent(golden):
    first, second = golden.z[:6], F.normalize(golden.z[:6] + 0.3 * golden.z[6:], dim=1)
    y = torch.arange(6).repeat(2)
    for temperature in (0.1, 0.5):
        found = SupCon(temperature=temperature)(torch.cat([first, second]), y).mean()
        assert math.isclose(found, nt_xent_by_hand(first, second, temperature), rel_tol=1e-12)


def test_one_class_alone_is_compared_within_itself(golden):
    y = torch.zeros(12, dtype=torch.int64)
    torch.testing.assert_close(SupCon()(golden.z, y), by_hand(golden.z, y, 0.1))
    assert (SupCon()(golden.z, torch.arange(12)) == 0).all()


def test_graded_by_hand(golden, graded):
    each, has = [], 0
    for i in range(12):
        pairs = graded.known(i)
        s = {j: float(golden.z[i] @ golden.z[j]) / 0.1 for j, _ in pairs}
        everybody, total = sum(math.exp(v) for v in s.values()), sum(r for _, r in pairs)
        each.append(-sum(r / total * math.log(math.exp(s[j]) / everybody) for j, r in pairs) if total else 0.0)
        has += total > 0
    found = SupCon().with_relevance(graded.relevance)(golden.z, graded.ids)
    torch.testing.assert_close(found, torch.tensor(each, dtype=torch.float64) * 12 / has)
