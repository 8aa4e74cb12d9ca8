import math

import torch
from likewise.losses import ProxyAnchor

from likewise.testing.loss import ClassRelevance


def by_hand(z, y, proxies, alpha, margin):
    """The paper's one number, proxy by proxy."""
    pull, push, present = 0.0, 0.0, 0
    for c in range(len(proxies)):
        p = proxies[c] / proxies[c].norm()
        s = [float(z[i] @ p) for i in range(len(y))]
        mine = [math.exp(-alpha * (s[i] - margin)) for i in range(len(y)) if y[i] == c]
        other = [math.exp(alpha * (s[i] + margin)) for i in range(len(y)) if y[i] != c]
        present += bool(mine)
        pull += math.log(1 + sum(mine))
        push += math.log(1 + sum(other))
    return pull / present + push / len(proxies)


def made(golden):
    loss = ProxyAnchor(classes=6, dim=8).double()
    loss.proxies.data = golden.proxies.clone()
    return loss


def test_by_hand_and_golden(golden):
    value = made(golden)(golden.z, golden.y).mean().item()
    assert math.isclose(value, by_hand(golden.z, golden.y, golden.proxies, 32, 0.1), rel_tol=1e-12)
    assert math.isclose(value, golden.value["proxy_anchor"], abs_tol=1e-8)


def test_the_shares_are_larger_for_harder_samples(golden):
    loss = ProxyAnchor(classes=2, dim=2).double()
    loss.proxies.data = torch.eye(2, dtype=torch.float64)
    angle = torch.tensor([0.2, 1.2, 1.5], dtype=torch.float64)  # ever further from their proxy
    z = torch.stack([angle.cos(), angle.sin()], 1)
    each = loss(z, torch.zeros(3, dtype=torch.int64))
    assert each[0] < each[1] < each[2]


def test_several_labels_by_hand(golden, graded):
    """A sample is pulled by the proxies from the threshold on, and pushed by the others; a relevance r counts r or 1 - r."""
    loss = ProxyAnchor(classes=5, dim=8).double().with_relevance(graded.shared)
    hot = [[float(c in labels) for c in range(5)] for labels in graded.labels]
    soft = torch.randint(0, 9, (12, 5), generator=torch.Generator().manual_seed(1)) / 8
    for targets, relevance in ((hot, graded.shared), (soft.tolist(), ClassRelevance(soft[:5]))):
        loss.relevance, rows = relevance, range(12 if targets is hot else 5)
        pull = push = present = 0.0
        for c in range(5):
            p = loss.proxies[c] / loss.proxies[c].norm()
            s = [float(golden.z[i] @ p.detach()) for i in rows]
            own = [targets[i][c] >= relevance.threshold for i in rows]
            mine = [own[i] * targets[i][c] * math.exp(-32 * (s[i] - 0.1)) for i in rows]
            other = [(not own[i]) * (1 - targets[i][c]) * math.exp(32 * (s[i] + 0.1)) for i in rows]
            present += any(mine)
            pull += math.log(1 + sum(mine))
            push += math.log(1 + sum(other))
        value = loss(golden.z[: len(rows)], torch.arange(len(rows))).mean().item()
        assert math.isclose(value, pull / present + push / 5, rel_tol=1e-9)
