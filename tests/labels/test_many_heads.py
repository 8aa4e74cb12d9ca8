"""Many heads at once: the gradient of the project's own loss, metrics by hand, and heads that do not depend on each other."""

import pytest
import torch
from likewise.losses import MultiSimilarity
from torch.nn import functional as F

from likewise.labels.many_heads import HeadSettings, draw_batches, head_slope, score_heads, score_queries, train_heads

SMALL = HeadSettings(dim=4, epochs=2, lr=1e-2)


def data(n=48, classes=6, dims=5, seed=0):
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    centre = 2 * torch.randn(classes, dims, generator=random)
    return centre[y] + torch.randn(n, dims, generator=random), y


def test_the_gradient_is_that_of_the_loss():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(3, 20, 6, generator=random, dtype=torch.float64)
    w = torch.randn(3, 6, 4, generator=random, dtype=torch.float64)
    y = torch.randint(0, 5, (3, 20), generator=random)
    found = head_slope(x, y, w)
    for head in range(3):
        own = w[head].clone().requires_grad_(True)
        MultiSimilarity()(F.normalize(x[head] @ own, dim=1), y[head]).mean().backward()
        torch.testing.assert_close(found[head], own.grad)


def test_a_head_does_not_depend_on_the_others():
    x, y = data()
    other = (y + 1) % 6
    both = train_heads(x, torch.stack([y, other, y]), torch.tensor([3, 3, 4]), SMALL)
    alone = train_heads(x, y[None], torch.tensor([3]), SMALL)
    torch.testing.assert_close(both[0], alone[0], rtol=1e-4, atol=1e-5)  # batched products are summed in another order
    assert not torch.allclose(both[0], both[2]) and torch.equal(both, train_heads(
        x, torch.stack([y, other, y]), torch.tensor([3, 3, 4]), SMALL
    ))  # fmt: skip


def test_batches_leave_out_dropped_samples():
    y = torch.arange(40) % 5
    y[:7] = -1
    rows = draw_batches(y, 5, torch.Generator().manual_seed(0))
    assert rows.shape == (2, 20) and not (y[rows] < 0).any()
    assert [y[batch].bincount().tolist() for batch in rows] == [[4] * 5] * 2  # every class equally often
    single = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2])
    assert 3 not in draw_batches(single, 2, torch.Generator().manual_seed(0))


def metrics_by_hand(z, y):
    r1, mapr = [], []
    for q in range(len(y)):
        others = sorted((j for j in range(len(y)) if j != q and y[j] >= 0), key=lambda j: -float(z[q] @ z[j]))
        relevant = sum(y[j] == y[q] for j in others)
        if y[q] < 0 or not relevant:
            continue
        r1.append(float(y[others[0]] == y[q]))
        hits, total = 0, 0.0
        for place, j in enumerate(others[:relevant], 1):
            if y[j] == y[q]:
                hits += 1
                total += hits / place
        mapr.append(total / relevant)
    return sum(r1) / len(r1), sum(mapr) / len(mapr)


def test_metrics_by_hand():
    random = torch.Generator().manual_seed(1)
    x, w = torch.randn(30, 5, generator=random), torch.randn(2, 5, 3, generator=random)
    y = torch.randint(0, 6, (2, 30), generator=random)
    y[1, :4] = -1
    y[1, 5] = 17  # a class of one sample is no query
    found = score_heads(x, y, w)
    for head in range(2):
        want = metrics_by_hand(F.normalize(x @ w[head], dim=1), y[head].tolist())
        assert (float(found.r1[head]), float(found.mapr[head])) == pytest.approx(want, rel=1e-5)  # float32 means


def test_no_relevant_pair_is_nan():
    found = score_heads(torch.randn(4, 3), torch.arange(4)[None], torch.randn(1, 3, 2))
    assert found.r1.isnan().all() and found.mapr.isnan().all()


def test_queries_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.8, 0.3], [0.0, 1.0], [1.0, 0.05]])
    y = torch.tensor([4, 4, 7, 9, -1])  # 9 has no relevant sample, and 7 neither; -1 is left out
    found = score_queries(x, y, torch.eye(2))
    assert found.place.tolist() == [0, 1] and found.r1.tolist() == [1, 1] and found.mapr.tolist() == [1, 1]
    assert found.rival.tolist() == [7, 7]
    one = score_queries(x, torch.tensor([4, 4, -1, -1, 4]), torch.eye(2))
    assert one.rival.tolist() == [-1, -1, -1] and len(score_queries(x, torch.arange(5), torch.eye(2)).place) == 0
