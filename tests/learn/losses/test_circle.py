import math

import pytest
import torch
from likewise.losses import Circle
from likewise.types import Ref


def split(z, y, i):
    s = [float(z[i] @ z[j]) for j in range(len(y))]
    return [s[j] for j in range(len(y)) if j != i and y[j] == y[i]], [s[j] for j in range(len(y)) if y[j] != y[i]]


def by_hand(z, y, margin, gamma):
    each, has = [], 0
    for i in range(len(y)):
        pos, neg = split(z, y, i)
        if not pos or not neg:
            each.append(0.0)
            continue
        has += 1
        push = sum(math.exp(gamma * max(0, n + margin) * (n - margin)) for n in neg)
        pull = sum(math.exp(-gamma * max(0, 1 + margin - p) * (p - (1 - margin))) for p in pos)
        each.append(math.log(1 + push * pull))
    return torch.tensor(each, dtype=torch.float64) * len(y) / max(1, has)


@pytest.mark.parametrize(("margin", "gamma"), [(0.4, 80.0), (0.25, 4.0), (0.0, 10.0)])
def test_by_hand(golden, margin, gamma):
    for z in (golden.z, golden.half):
        for y in (golden.y, torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 5])):  # with and without lonely samples
            found = Circle(margin=margin, gamma=gamma)(z, y)
            torch.testing.assert_close(found, by_hand(z, y, margin, gamma))


def test_the_weights_are_constants_to_the_gradient():
    """One positive, one negative: dl/ds = sigmoid(exponent) * gamma * a, without the slope of a."""
    z = torch.nn.functional.normalize(
        torch.tensor([[1.0, 0.2, 0.0], [0.9, 0.5, 0.1], [0.6, -0.5, 0.4]]).double(), dim=1
    )
    anchor = z[:1].clone().requires_grad_()
    Circle(gamma=2.0)(anchor, torch.tensor([0]), Ref(z[1:], torch.tensor([0, 1]))).sum().backward()
    p, n = (float(z[0] @ z[j]) for j in (1, 2))
    pull, push = max(0, 1.4 - p), max(0, n + 0.4)
    total = 2 * push * (n - 0.4) - 2 * pull * (p - 0.6)
    slope = 2 / (1 + math.exp(-total))
    torch.testing.assert_close(anchor.grad[0], slope * (push * z[2] - pull * z[1]))


def test_nothing_to_compare_with_is_zero(golden):
    for y in (torch.zeros(12, dtype=torch.int64), torch.arange(12)):
        assert (Circle()(golden.z, y) == 0).all()


def test_graded_by_hand(golden, graded):
    """A positive counts with its relevance r, a negative with 1 - r."""
    each, has, m, gamma = [], 0, 0.25, 8.0
    for i in range(12):
        pairs = [(float(golden.z[i] @ golden.z[j]), r) for j, r in graded.known(i)]
        pull = sum(r * math.exp(-gamma * max(0, 1 + m - s) * (s - 1 + m)) for s, r in pairs if r >= 0.5)
        push = sum((1 - r) * math.exp(gamma * max(0, s + m) * (s - m)) for s, r in pairs if r < 0.5)
        each.append(math.log(1 + pull * push))
        has += pull > 0 and push > 0
    found = Circle(margin=m, gamma=gamma).with_relevance(graded.relevance)(golden.z, graded.ids)
    torch.testing.assert_close(found, torch.tensor(each, dtype=torch.float64) * 12 / has)
