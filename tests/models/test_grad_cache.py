"""Chunk by chunk: the gradients of the whole batch, with the activations of one chunk."""

import copy
import gc
import weakref

import pytest
import torch
from likewise.losses import Histogram, MultiSimilarity, ProxyAnchor
from likewise.types import LikewiseError, Output
from torch import nn
from torch.nn import functional as F

from likewise.models import Embedder
from likewise.models.grad_cache import Chunked, activation_bytes

SAMPLES, CLASSES = 11, 4


class Network(nn.Module):
    """Features, embedding and parts, one made of the other; counts its forward passes."""

    def __init__(self, norm: bool = False, drop: float = 0.0):
        super().__init__()
        self.body, self.head = nn.Linear(5, 8), nn.Linear(8, 6)
        self.norm, self.drop = nn.BatchNorm1d(8) if norm else nn.Identity(), nn.Dropout(drop)
        self.sizes: list[int] = []

    def forward(self, x):
        self.sizes.append(len(x))
        f = self.drop(self.norm(self.body(x)).tanh())
        e = self.head(f)
        return Output(F.normalize(e, dim=1), e, f, nodes=e.view(-1, 2, 3), rec=None)


def data():
    torch.manual_seed(0)
    return torch.randn(SAMPLES, 5, dtype=torch.float64), torch.arange(SAMPLES) % CLASSES


def slopes(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def assert_same(found, want, tolerance=1e-10):
    assert len(found) == len(want) and any(w.abs().max() > 1e-4 for w in want)
    for a, b in zip(found, want, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


OBJECTIVES = {
    "MultiSimilarity": lambda: (MultiSimilarity(), lambda loss, out, y: loss(out.z, y).mean()),
    "ProxyAnchor": lambda: (ProxyAnchor(classes=CLASSES, dim=6), lambda loss, out, y: loss(out.z, y).mean()),
    "Histogram": lambda: (Histogram(), lambda loss, out, y: loss(out.z, y).mean()),
    "all fields": lambda: (
        MultiSimilarity(),
        lambda loss, out, y: (
            loss(out.z, y).mean() + (out.f @ out.f.T).square().mean() + out.e.exp().mean() + out.nodes.prod(1).mean()
        ),
    ),
    "features alone": lambda: (MultiSimilarity(), lambda loss, out, y: (out.f @ out.f.T).square().mean()),
}


@pytest.mark.parametrize("chunk", [1, 3, 4, 10])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_are_those_of_the_whole_batch(name, chunk):
    x, y = data()
    network = Network().double()
    loss, objective = OBJECTIVES[name]()
    loss.double()
    want = objective(loss, network(x), y)
    want.backward()
    both = nn.ModuleList([network, loss])
    wanted = slopes(both)
    both.zero_grad()
    chunked = Chunked(network, chunk)
    found = objective(loss, chunked(x), y)
    found.backward()
    chunked.finish()
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
    if name == "features alone":  # the head has no part in it
        wanted, found = wanted[:2], slopes(both)
        assert found[2] is found[3] is None
        assert_same(found[:2], wanted)
    else:
        assert_same(slopes(both), wanted)


def test_gradients_add_to_what_is_there():
    x, y = data()
    network = Network().double()
    chunked = Chunked(network, 4)
    for _ in range(2):
        MultiSimilarity()(chunked(x).z, y).sum().backward()
        chunked.finish()
    twice = slopes(network)
    network.zero_grad()
    MultiSimilarity()(network(x).z, y).sum().backward()
    assert_same(twice, [2 * slope for slope in slopes(network)])


def test_dropout_draws_the_same_numbers_twice_and_others_next_time():
    x, _ = data()
    network = Network(drop=0.5).double()
    torch.manual_seed(7)
    by_hand = torch.cat([network(x[a:b]).z for a, b in ((0, 4), (4, 8), (8, 11))])
    torch.rand(3)  # what a miner draws
    (by_hand @ by_hand.T).exp().sum().backward()
    want, then = slopes(network), torch.rand(5)
    network.zero_grad()

    chunked = Chunked(network, 4)
    torch.manual_seed(7)
    z = chunked(x).z
    torch.rand(3)
    (z @ z.T).exp().sum().backward()
    chunked.finish()
    assert torch.equal(z, by_hand) and torch.equal(torch.rand(5), then), "random numbers go on as without chunks"
    assert_same(slopes(network), want)
    assert not torch.allclose(chunked(x).z, by_hand)


def test_batch_norm_moves_once_per_chunk():
    x, y = data()
    network = Network(norm=True).double()
    plain = copy.deepcopy(network)
    outs = [plain(part) for part in (x[:4], x[4:8], x[8:])]
    MultiSimilarity()(torch.cat([out.z for out in outs]), y).mean().backward()
    chunked = Chunked(network, 4)
    MultiSimilarity()(chunked(x).z, y).mean().backward()
    chunked.finish()
    assert network.norm.num_batches_tracked == 3
    for kept, want in zip(network.buffers(), plain.buffers(), strict=True):
        assert torch.equal(kept, want)
    assert_same(slopes(network), slopes(plain))


def test_passes_and_even_chunks():
    x, _ = data()
    network = Network(norm=True).double()
    chunked = Chunked(network, 5)
    out = chunked(x)
    assert network.sizes == [4, 4, 3], "never a last chunk of one"
    assert out.z.is_leaf and out.f.is_leaf and out.rec is None and out.nodes.shape == (SAMPLES, 2, 3)
    out.z.sum().backward()
    chunked.finish()
    chunked.finish()  # there is nothing left to do
    assert network.sizes == [4, 4, 3] * 2


@pytest.mark.parametrize("chunk", [SAMPLES, 1000])
def test_a_batch_of_one_chunk_is_the_plain_network(chunk):
    x, _ = data()
    network = Network().double()
    chunked = Chunked(network, chunk)
    out = chunked(x)
    assert out.z.grad_fn is not None and network.sizes == [SAMPLES]
    out.z[0].sum().backward()
    want = slopes(network)
    chunked.finish()
    assert network.sizes == [SAMPLES] and all(torch.equal(a, b) for a, b in zip(slopes(network), want, strict=True))


def test_without_a_gradient_or_parameters_that_learn_nothing_is_kept():
    x, y = data()
    network = Network().double()
    chunked = Chunked(network, 4)
    with torch.no_grad():
        assert not chunked(x).z.requires_grad and chunked.first_pass is None
    network.requires_grad_(False)
    out = chunked(x)
    loss = ProxyAnchor(classes=CLASSES, dim=6).double()
    loss(out.z, y).mean().backward()
    chunked.finish()
    assert loss.proxies.grad is not None and out.z.grad is None and len(network.sizes) == 6


def test_frozen_features_and_a_head_that_learns():
    x, _ = data()
    embedder = Embedder("features", 3, features=5).double()
    chunked = Chunked(embedder, 4)
    out = chunked(x)
    (out.z.sum() + out.f.square().sum()).backward()  # f is x itself: nobody is there to learn from its gradient
    chunked.finish()
    found = slopes(embedder)
    embedder.zero_grad()
    embedder(x).z.sum().backward()
    assert_same(found, slopes(embedder))


@pytest.mark.parametrize("inside", [True, False])
def test_both_passes_run_under_the_callers_autocast(inside):
    x, y = data()
    network = Network()
    seen = []
    network.body.register_forward_hook(lambda module, given, found: seen.append(found.dtype))
    chunked = Chunked(network, 4)
    with torch.autocast("cpu", torch.bfloat16):
        out = chunked(x.float())
        value = MultiSimilarity()(out.z.float(), y).mean()
        if inside:
            value.backward()
            chunked.finish()
    if not inside:
        value.backward()
        chunked.finish()
    assert seen == [torch.bfloat16] * 6
    found = slopes(network)
    network.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        value = MultiSimilarity()(network(x.float()).z.float(), y).mean()
    value.backward()
    for a, b in zip(found, slopes(network), strict=True):
        assert (a - b).norm() < 0.05 * b.norm()


def test_nothing_is_kept_after_the_end():
    x, _ = data()
    network = Network().double()
    chunked = Chunked(network, 4)
    out = chunked(x)
    (out.z @ out.z.T).sum().backward()
    kept = [weakref.ref(t) for t in (x, *chunked.first_pass.chunks, out.z, out.f)]
    chunked.finish()
    del x, out
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept) and chunked.first_pass is None


class Saved:
    """A tensor that autograd keeps for the backward pass."""

    now = most = 0

    def __init__(self, tensor):
        self.tensor = tensor
        Saved.now += tensor.numel()
        Saved.most = max(Saved.most, Saved.now)

    def __del__(self):
        Saved.now -= self.tensor.numel()


def test_activations_of_one_chunk_at_a_time():
    x = torch.randn(64, 5, dtype=torch.float64)
    network = Network().double()

    def most_kept(chunk):
        Saved.now = Saved.most = 0
        chunked = Chunked(network, chunk)
        with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
            chunked(x).z.square().sum().backward()
            chunked.finish()
        assert Saved.now == 0
        return Saved.most

    assert most_kept(8) < most_kept(64) / 3


def test_mistakes_are_named():
    x, _ = data()
    with pytest.raises(LikewiseError, match="Chunked: chunk must be at least 1, got 0"):
        Chunked(Network(), 0)
    chunked = Chunked(Network().double(), 4)
    chunked(x)
    with pytest.raises(LikewiseError, match="the previous batch must be finished first"):
        chunked(x)
    chunked.finish()
    chunked(x)


def test_activation_bytes_by_hand():
    """Per sample: the input (10 floats), and the output of the ReLU (20 floats), which the second layer needs, too."""
    network = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    assert activation_bytes(network, torch.randn(4, 10)) == 4 * (10 + 20)
