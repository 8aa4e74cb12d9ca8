"""Branches, their losses and the three parts of a row by hand."""

import pytest
import torch
from likewise.losses import Contrastive, CrossBatchMemory, Histogram, MultiSimilarity, ProxyNCA
from likewise.terms import S2SD
from likewise.types import Batch
from torch.nn import functional as F


@pytest.fixture
def batch():
    torch.manual_seed(1)
    return Batch(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(6))


def proxies(dim):
    return ProxyNCA(classes=3, dim=dim)


def unit(x):
    return x / x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_by_hand(net, kl_by_hand, batch, temperature):
    torch.manual_seed(5)
    term = S2SD(proxies, net, dims=(6, 16), distill=3.0, distill_feature=7.0, delay=2, temperature=temperature)
    out = net(batch.x)
    sim = out.z @ out.z.T
    total = torch.zeros(6)
    for branch, loss in zip(term.branches, term.losses):
        first, second = branch[0], branch[2]
        t = unit((out.f @ first.weight.T + first.bias).clamp_min(0) @ second.weight.T + second.bias)
        total += loss(t, batch.y) / 2 / 2 + 3.0 * kl_by_hand(t @ t.T, sim, temperature) / 2
    torch.testing.assert_close(term(out, batch), total, rtol=1e-4, atol=1e-5)
    term.after_step(1)
    torch.testing.assert_close(term(out, batch), total, rtol=1e-4, atol=1e-5)
    term.after_step(2)
    f = unit(out.f)
    total += 7.0 * kl_by_hand(f @ f.T, sim, temperature)
    torch.testing.assert_close(term(out, batch), total, rtol=1e-4, atol=1e-5)


def test_branches_learn_from_their_loss_alone_and_the_embedding_from_them(net, batch):
    term = S2SD(proxies, net, dims=(6,), distill=0.0, distill_feature=0.0, delay=0)
    term(net(batch.x), batch).mean().backward()
    by_loss = [p.grad.clone() for p in term.parameters()]
    assert net.head.weight.grad is None or not net.head.weight.grad.any(), "a branch's loss goes past the real head"
    assert net.body.weight.grad.any(), "and reaches the backbone"
    for p in (*term.parameters(), *net.parameters()):
        p.grad = None
    term.distill = term.distill_feature = 50.0
    term(net(batch.x), batch).mean().backward()
    assert all(torch.allclose(p.grad, g) for p, g in zip(term.parameters(), by_loss)), "teachers are constants"
    assert net.head.weight.grad.any()


def test_every_branch_has_a_loss_of_its_own_that_hears_of_every_step(net, batch):
    def remember(dim):
        return CrossBatchMemory(dim=dim, loss=Contrastive(), size=16)

    term = S2SD(remember, net, dims=(6, 7))
    term(net(batch.x), batch)
    term.after_step(1)
    assert [int(loss.filled) for loss in term.losses] == [6, 6]
    assert [loss.dim for loss in term.losses] == [6, 7]


def test_a_loss_of_raw_embeddings_gets_them_raw(net, batch):
    class Length(MultiSimilarity):
        input = "raw"

        def forward(self, z, y, ref=None):
            return z.norm(dim=1)

    term = S2SD(lambda dim: Length(), net, dims=(6,), distill=0.0, distill_feature=0.0)
    out = net(batch.x)
    torch.testing.assert_close(term(out, batch), term.branches[0](out.f).norm(dim=1) / 2)
    unit_loss = S2SD(lambda dim: Histogram(), net, dims=(6,))
    assert unit_loss(out, batch).isfinite().all()


def test_a_feature_of_zeros_does_no_harm(net, batch):
    term = S2SD(proxies, net, dims=(6,), delay=0)
    out = net(batch.x)
    e = out.e.detach().requires_grad_()
    found = term(out._replace(z=F.normalize(e, dim=1), f=torch.zeros_like(out.f)), batch)
    found.sum().backward()
    assert found.isfinite().all() and e.grad.isfinite().all()
