"""Compositional metric learning: the objective by hand, and a training that resumes exactly."""

import pytest
import torch
from likewise.losses import MultiSimilarity, ProxyNCA
from likewise.terms import DCML
from likewise.types import Batch, LikewiseError

from likewise.models import Embedder
from likewise.models.heads import Compositional


def made(**changes):
    torch.manual_seed(0)
    network = Embedder("features", 6, lambda features, dim: Compositional(features, dim, k=3), features=7)
    return DCML(lambda dim: ProxyNCA(classes=4, dim=dim), network, **changes), network


def test_the_objective_adds_up():
    term, network = made(decision=0.5)
    x, y = torch.randn(8, 7), torch.arange(8) % 4
    out = network(x)
    parts = [loss(out.e[:, 2 * c : 2 * c + 2], y) for c, loss in enumerate(term.losses)]
    torch.testing.assert_close(term(out, Batch(x, y, y)), sum(parts) + 0.5 * out.rec.sum(1))
    assert float(term.observe_state()["mixtures_undecided"]) == pytest.approx(float(out.rec.mean().detach()))


def test_training_decides_the_mixtures():
    """With four parts the cost begins near log 4 and falls to 0, where each mixture is one part."""
    term, network = made()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    x, y = torch.randn(8, 7), torch.arange(8) % 4
    costs = []
    for _ in range(150):
        optimizer.zero_grad()
        term(network(x), Batch(x, y, y)).mean().backward()
        optimizer.step()
        costs.append(float(term.observe_state()["mixtures_undecided"]))
    assert costs[0] > 0.5 and costs[-1] < costs[0] / 4


def test_errors():
    with pytest.raises(LikewiseError, match="got Linear; train with --head 'Compositional"):
        DCML(lambda dim: MultiSimilarity(), Embedder("features", 6, features=7))
