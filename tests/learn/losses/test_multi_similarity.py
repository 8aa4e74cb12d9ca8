import math

import pytest
import torch
from likewise.losses import MultiSimilarity


def by_hand(z, y, alpha, beta, base, eps):
    each = []
    for i in range(len(y)):
        s = [float(z[i] @ z[j]) for j in range(len(y))]
        pos = [s[j] for j in range(len(y)) if j != i and y[j] == y[i]]
        neg = [s[j] for j in range(len(y)) if y[j] != y[i]]
        if eps is not None:
            if not pos or not neg:
                each.append(0.0)
                continue
            pos, neg = [p for p in pos if p - eps < max(neg)], [n for n in neg if n + eps > min(pos)]
        pull = math.log(1 + sum(math.exp(-alpha * (p - base)) for p in pos)) / alpha
        push = math.log(1 + sum(math.exp(beta * (n - base)) for n in neg)) / beta
        each.append(pull + push)
    return torch.tensor(each, dtype=torch.float64)


@pytest.mark.parametrize("eps", [0.1, None])
def test_by_hand(golden, eps):
    loss = MultiSimilarity() if eps else MultiSimilarity(miner=None)
    for z in (golden.z, golden.half):
        torch.testing.assert_close(loss(z, golden.y), by_hand(z, golden.y, 2.0, 40.0, 0.5, eps))


def test_golden(golden):
    each = MultiSimilarity()(golden.z, golden.y)
    torch.testing.assert_close(each, golden.each["multi_similarity"], rtol=0, atol=1e-8)
    assert math.isclose(each.mean().item(), golden.value["multi_similarity"], abs_tol=1e-8)
    half = MultiSimilarity()(golden.half, golden.y)
    assert math.isclose(half.mean().item(), golden.half_value, abs_tol=1e-8)
    assert (half == 0).sum() == 6  # solved anchors ask for nothing


def test_graded_by_hand(golden, graded):
    """A positive counts with its relevance r, a negative with 1 - r."""
    each = []
    for i in range(12):
        pairs = [(float(golden.z[i] @ golden.z[j]) - 0.5, r) for j, r in graded.known(i)]
        pull = math.log(1 + sum(r * math.exp(-2 * s) for s, r in pairs if r >= 0.5)) / 2
        push = math.log(1 + sum((1 - r) * math.exp(40 * s) for s, r in pairs if r < 0.5)) / 40
        each.append(pull + push)
    found = MultiSimilarity(miner=None).with_relevance(graded.relevance)(golden.z, graded.ids)
    torch.testing.assert_close(found, torch.tensor(each, dtype=torch.float64))
