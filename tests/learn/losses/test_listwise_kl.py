import math

import pytest
import torch
from likewise.losses import ListwiseKL
from torch.nn import functional as F


def by_hand(z, pairs_of, t, t_r):
    each, has = [], 0
    for i in range(len(z)):
        pairs = pairs_of(i)
        p = [math.exp(r / t_r) for _, r in pairs]
        q = [math.exp(float(z[i] @ z[j]) / t) for j, _ in pairs]
        each.append(sum(a / sum(p) * math.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True)))
        has += bool(pairs)
    return torch.tensor(each, dtype=torch.float64) * len(z) / has


@pytest.mark.parametrize(("t", "t_r"), [(0.1, 0.1), (0.5, 1.0)])
def test_by_hand(golden, graded, t, t_r):
    z, y = golden.z, golden.y.tolist()
    pairs = lambda i: [(j, float(y[j] == y[i])) for j in range(12) if j != i]  # noqa: E731
    torch.testing.assert_close(ListwiseKL(t, t_r)(z, golden.y), by_hand(z, pairs, t, t_r))
    found = ListwiseKL(t, t_r).with_relevance(graded.relevance)(z, graded.ids)
    torch.testing.assert_close(found, by_hand(z, lambda i: graded.known(i), t, t_r))


def test_agrees_with_torch(golden):
    """`kl_div` of the same two distributions, without the diagonal."""
    same = (golden.y[:, None] == golden.y).double()
    rest = ~torch.eye(12, dtype=torch.bool)
    p, q = ((v[rest].view(12, 11) / 0.1).log_softmax(1) for v in (same, golden.z @ golden.z.T))
    expected = F.kl_div(q, p, reduction="none", log_target=True).sum(1)
    torch.testing.assert_close(ListwiseKL()(golden.z, golden.y), expected)
