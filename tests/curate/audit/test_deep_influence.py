"""Influence through all layers: forward mode against a gradient per sample, the head alone against `influence`."""

import pytest
import torch
from likewise.types import Embedded, LikewiseError, Output
from torch import nn
from torch.nn import functional as F

from likewise import losses
from likewise.curate.audit import deep_influence as deeper
from likewise.curate.audit import influence as inf
from likewise.models.embedder import Embedder

DIM, CLASSES, N = 6, 4, 12
PAIR = torch.tensor([[0, 1], [2, 3], [0, 4]])
SIGN = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
GROUP = torch.tensor([1, 0, 1])


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    embedder = Embedder("conv_small", DIM, pretrained=False).double()
    with torch.no_grad():
        embedder(pictures(32, 9))  # statistics of BatchNorm that are not 0 and 1
    return embedder


def pictures(n, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, 20, 20, generator=draw, dtype=torch.float64)


def embedded(embedder, x):
    with torch.no_grad():
        out = embedder.eval()(x)
    return Embedded(out.z, torch.arange(len(x)) % CLASSES, torch.arange(len(x)), out.e, out.f)


def slope(embedder, value):
    """One gradient by all parameters."""
    found = torch.autograd.grad(value, list(embedder.parameters()), retain_graph=True)
    return torch.cat([one.flatten() for one in found])


def error_by_hand(embedder, x, members, space):
    out = embedder(x)
    z = out.z if space == "unit" else out.e
    total = sum(SIGN[p] * (z[PAIR[p, 0]] - z[PAIR[p, 1]]).square().sum() for p in members) / len(members)
    return slope(embedder, total)


@pytest.mark.parametrize("space", ["unit", "raw"])
def test_it_is_the_product_of_gradients_by_all_parameters(network, space):
    x, test_x = pictures(N, 1), pictures(5, 2)
    train = embedded(network, x)
    torch.manual_seed(1)
    loss = losses.ProxyNCA(CLASSES, DIM).double()
    g = inf.embedding_gradients(loss, train)
    network.train()
    state = {k: v.clone() for k, v in network.state_dict().items()}
    aim = deeper.deep_repairs(network, test_x, PAIR, SIGN, GROUP, space, batch=2)
    found = deeper.deep_influence(network, x.split(5), g, aim)
    assert network.training and all(torch.equal(v, state[k]) for k, v in network.state_dict().items())
    network.eval()
    each = loss(network(x).z, train.y)
    for q, members in enumerate([[1], [0, 2]]):
        want = error_by_hand(network, test_x, members, space)
        torch.testing.assert_close(torch.cat([v.flatten() for v in aim[q].values()]), want, rtol=1e-9, atol=1e-12)
        for n in range(N):
            torch.testing.assert_close(found[q, n], want @ slope(network, each[n]), rtol=1e-8, atol=1e-12)


def test_a_loss_that_compares_samples_adds_up_to_the_gradient_of_its_batch(network):
    x, test_x = pictures(N, 1), pictures(5, 2)
    train = embedded(network, x)
    loss = losses.MultiSimilarity().double()
    g = inf.embedding_gradients(loss, train, [torch.arange(N)])
    found = deeper.deep_influence(network, [x], g, deeper.deep_repairs(network, test_x, PAIR, SIGN))
    network.eval()
    whole = slope(network, loss(network(x).z, train.y).sum())
    for q in range(3):
        torch.testing.assert_close(found[q].sum(), whole @ error_by_hand(network, test_x, [q], "unit"))


def test_through_the_weights_of_the_head_alone_it_is_influence(network):
    x, test_x = pictures(N, 1), pictures(5, 2)
    train, test = embedded(network, x), embedded(network, test_x)
    torch.manual_seed(1)
    g = inf.embedding_gradients(losses.ProxyNCA(CLASSES, DIM).double(), train)
    aim = deeper.deep_repairs(network, test_x, PAIR, SIGN, GROUP, under=("head.fc.weight",))
    assert [list(way) for way in aim] == [["head.fc.weight"]] * 2
    want = inf.influence(inf.repairs(test, PAIR, SIGN, GROUP), g, train.f)
    torch.testing.assert_close(deeper.deep_influence(network, x.split(7), g, aim), want, rtol=1e-9, atol=1e-12)


class Attending(nn.Module):
    """A network whose attention has no forward mode, unless it is told to take plain operations."""

    def __init__(self):
        super().__init__()
        self.mix, self.head, self.unused = nn.Linear(8, 24), nn.Linear(8, DIM), nn.Linear(2, 2)

    def forward(self, x):
        q, k, v = self.mix(x.view(-1, 1, 4, 8)).chunk(3, 3)
        f = F.scaled_dot_product_attention(q, k, v)[:, 0].mean(1)
        e = self.head(f)
        return Output(F.normalize(e, dim=1), e, f)


def test_attention_and_parameters_that_go_unused():
    torch.manual_seed(0)
    network, x, g = Attending(), torch.randn(N, 32), torch.randn(N, DIM)
    aim = deeper.deep_repairs(network, x, PAIR, SIGN.float())
    assert not aim[0]["unused.weight"].any() and aim[0]["mix.weight"].any()
    found = deeper.deep_influence(network, [x], g, aim)
    e, named = network(x).e, dict(network.named_parameters())
    for n in range(N):
        own = torch.autograd.grad(e[n] @ g[n], list(named.values()), retain_graph=True, materialize_grads=True)
        want = sum((aim[0][name] * one).sum() for name, one in zip(named, own))
        torch.testing.assert_close(found[0, n], want, rtol=1e-3, atol=1e-5)


def test_bad_input(network):
    x = pictures(5, 2)
    with pytest.raises(
        LikewiseError,
        match=r"`under` must be a prefix of parameter names, got \('neck',\); the network has",
    ):
        deeper.deep_repairs(network, x, PAIR, SIGN, under=("neck",))
    with pytest.raises(LikewiseError, match="pairs must be rows of test samples, 0 to 3, got 0 to 4"):
        deeper.deep_repairs(network, x[:4], PAIR, SIGN)
    aim = deeper.deep_repairs(network, x, PAIR, SIGN)
    for n, told in ((6, "the 6 training samples of g, in their order, got 5$"), (4, "got 5 or more")):
        with pytest.raises(LikewiseError, match=told):
            deeper.deep_influence(network, x.split(3), torch.ones(n, DIM, dtype=torch.float64), aim)
    with pytest.raises(LikewiseError, match="the network's derivatives must be finite"):
        deeper.deep_influence(network, [x], torch.full((5, DIM), torch.inf, dtype=torch.float64), aim)
