"""Heads by hand: every equation in plain numbers, who learns from what, and features of any width."""

import math

import pytest
import torch
from likewise.types import LikewiseError
from sklearn import decomposition as sklearn
from torch.nn import functional as F

from likewise.models import Embedder, heads


@pytest.mark.parametrize("name", heads.__all__)
def test_every_head_maps_features_to_the_embedding(name):
    dim = 7 if name == "Identity" else 4
    head = getattr(heads, name)(features=7, dim=dim)
    found = head(torch.randn(5, 7))
    assert (found[0] if isinstance(found, tuple) else found).shape == (5, dim)


def test_identity_is_the_feature_and_nothing_else():
    embedder = Embedder("features", 6, heads.Identity, features=6)
    x = torch.randn(5, 6)
    torch.testing.assert_close(embedder(x).e, x, rtol=0, atol=0)
    assert list(embedder.parameters()) == []
    with pytest.raises(LikewiseError, match="Identity: dim must be the width of the feature, 6, got 4"):
        heads.Identity(6, 4)


def crowd(rows=40, width=6):
    g = torch.Generator().manual_seed(3)
    return torch.randn(rows, width, generator=g, dtype=torch.float64) @ torch.randn(
        width, width, generator=g, dtype=torch.float64
    )


@pytest.mark.parity
def test_principal_components_agree_with_scikit_learn():
    head, f = heads.PCA(6, 3).double(), crowd()
    head.fit(f)
    expected = torch.as_tensor(sklearn.PCA(3).fit_transform(f.numpy()))
    sign = (head(f) * expected).sum(0).sign()  # a component has no direction of its own
    torch.testing.assert_close(head(f), expected * sign)
    assert (head.components.gather(1, head.components.abs().argmax(1, keepdim=True)) > 0).all()


def test_principal_components_by_hand_and_without_a_gradient():
    """Along (3, 4) the points vary most, by 1 and -1 times five; across, by half of that."""
    points = torch.tensor([[3.0, 4.0], [-3.0, -4.0], [-2.0, 1.5], [2.0, -1.5]]) + 7
    head = heads.PCA(2, 1)
    head.fit(points)
    torch.testing.assert_close(head(points), torch.tensor([[5.0], [-5.0], [0.0], [0.0]]), atol=1e-5, rtol=0)
    assert list(head.parameters()) == [] and set(head.state_dict()) == {"mean", "components"}


def test_components_beyond_the_rank_are_zero_and_too_many_are_refused():
    head = heads.PCA(6, 5)
    head.fit(crowd(3).float())  # three points have two directions
    assert (head.components.norm(dim=1).round() == torch.tensor([1.0, 1, 0, 0, 0])).all()
    with pytest.raises(LikewiseError, match="PCA: dim must be at most the width of the feature, 6, got 7"):
        heads.PCA(6, 7)


def test_mlp_by_hand():
    head = heads.MLP(4, 2, hidden=6, layers=3)
    f = torch.randn(5, 4)
    (w1, b1), (w2, b2), (w3, b3) = [(m.weight, m.bias) for m in head.net if hasattr(m, "weight")]
    assert [tuple(w.shape) for w in (w1, w2, w3)] == [(6, 4), (6, 6), (2, 6)]
    by_hand = (((f @ w1.T + b1).clamp(min=0)) @ w2.T + b2).clamp(min=0) @ w3.T + b3
    torch.testing.assert_close(head(f), by_hand)


def test_one_layer_is_linear():
    head = heads.MLP(4, 2, layers=1)
    f = torch.randn(5, 4)
    torch.testing.assert_close(head(-f) + head(f), 2 * head(torch.zeros(5, 4)))


def relational(*arguments, seed=0, **settings):
    """One whose every parameter was drawn, as after some training, in float64."""
    torch.manual_seed(seed)
    head = heads.Relational(*arguments, **settings).double()
    with torch.no_grad():
        for p in head.parameters():
            p.copy_(torch.randn(p.shape, dtype=p.dtype) * 0.7)
        if head.messages:
            head.edge.bias.fill_(1.0)  # so that some nodes hear nobody, some one, some more
    return head


def linear(x, weight, bias):
    """Of plain lists; a weight has a row for every input."""
    return [bias[j] + sum(x[i] * weight[i][j] for i in range(len(x))) for j in range(len(bias))]


def layer(side, part, x):
    return linear(x, side.weight[part].tolist(), side.bias[part, 0].tolist())


def by_hand(head, f):
    """One sample as a list -> (e, nodes, rec), one number at a time."""
    width, slices, first = math.ceil(head.features / head.k), [], 0
    for part in range(head.k):
        own = head.features // head.k + (part < head.features % head.k)
        slices.append(f[first : first + own] if head.slice_input else f)
        first += own
    padded = [u + [0.0] * (width - len(u)) if head.slice_input else u for u in slices]
    nodes, rec = [], []
    for part, u in enumerate(padded):
        raw = layer(head.node, part, u)
        length = math.sqrt(sum(x * x for x in raw))
        nodes.append([x / length for x in raw])
        back, own = layer(head.decoder, part, nodes[part]), len(slices[part])
        rec.append(sum((back[i] - u[i]) ** 2 for i in range(own)) / own)
    if not head.messages:
        return sum(nodes, []), nodes, rec
    v, c = head.edge.weight[0].tolist(), head.edge.bias.item()
    mix, bias, e = head.mix.weight.T.tolist(), head.mix.bias.tolist(), []
    for j in range(head.k):
        b = layer(head.target, j, padded[j])
        edges = []
        for i in range(head.k):
            a = layer(head.source, i, padded[i])
            edges.append(max(0.0, c + sum(v[d] * (a[d] - b[d]) for d in range(len(v)))))
        total = sum(edges)
        message = [sum(edges[i] * nodes[i][d] for i in range(head.k)) / (total or 1.0) for d in range(len(v))]
        e += linear(nodes[j] + message, mix, bias)
    return e, nodes, rec


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"messages": False}, {"slice_input": False}, {"features": 7}, {"features": 5, "k": 4}, {"k": 1},
        {"features": 3, "k": 4, "slice_input": False, "messages": False},
    ],
)  # fmt: skip
def test_relational_by_hand(settings):
    head = relational(**{"features": 6, "dim": 4, "k": 2} | settings)
    f = torch.randn(9, head.features, dtype=torch.float64)
    found = head(f)
    assert [tuple(t.shape) for t in found] == [(9, 4), (9, head.k, 4 // head.k), (9, head.k)]
    for sample, *one in zip(f.tolist(), *found):
        for have, want in zip(one, by_hand(head, sample)):
            torch.testing.assert_close(have.detach(), torch.tensor(want, dtype=torch.float64))
    alone = head(f[3:4])
    assert all(torch.allclose(a[0], b[3]) for a, b in zip(alone, found)), "a batch of one"


def test_the_case_by_hand_has_nodes_that_hear_nobody_and_nodes_that_hear_some():
    head = relational(6, 4, k=2)
    u = head.slices(torch.randn(9, 6, dtype=torch.float64))
    score = (head.source(u) @ head.edge.weight[0]).T[:, :, None] - (head.target(u) @ head.edge.weight[0]).T[:, None, :]
    assert set((score + head.edge.bias > 0).sum(1).flatten().tolist()) == {0, 1, 2}


def test_relational_has_the_papers_size_and_start():
    torch.manual_seed(0)
    head = heads.Relational(1024, 512)
    assert sum(p.numel() for p in head.parameters()) == 559_873
    for side, out in ((head.node, 128), (head.decoder, 256), (head.source, 128), (head.target, 128), (head.edge, 1)):
        assert side.weight.std().item() == pytest.approx(math.sqrt(2 / out), rel=0.2 if out == 1 else 0.01)
        assert not side.bias.any()
    e, nodes, _ = head(torch.randn(3, 1024))
    assert torch.equal(head.mix.weight[:, :128], torch.eye(128)) and torch.equal(e, nodes.flatten(1))
    torch.testing.assert_close(nodes.norm(dim=2), torch.ones(3, 4))


def gradients(head, value, f):
    names, parameters = zip(*head.named_parameters())
    slopes = torch.autograd.grad(value, [f, *parameters], allow_unused=True, retain_graph=True)
    return {name for name, slope in zip(("f", *names), slopes) if slope is not None and slope.any()}


def test_reconstruction_trains_decoders_alone_and_messages_pass_by_the_trunk():
    head = relational(6, 4, k=2)
    f = torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    e, nodes, rec = head(f)
    assert gradients(head, rec.mean(), f) == {"decoder.weight", "decoder.bias"}
    assert gradients(head, nodes[..., 0].sum(), f) == {"f", "node.weight", "node.bias"}
    edges = {"source.weight", "source.bias", "target.weight", "target.bias", "edge.weight", "edge.bias"}
    both = {"f", "node.weight", "node.bias", "mix.weight", "mix.bias"}
    assert gradients(head, e[:, 0].sum(), f) == both | edges
    u = head.slices(f)
    cut = head.relate(nodes.detach(), u.detach())  # as forward does, but for the path through the nodes
    torch.testing.assert_close(cut.flatten(1), e)
    assert gradients(head, cut[..., 0].sum(), f) == edges | {"mix.weight", "mix.bias"}


def test_the_trunk_is_reached_through_nodes_only():
    """The whole forward pass, its node layers cut off: nothing at all arrives at the feature."""
    head = relational(6, 4, k=2)
    head.node.register_forward_hook(lambda module, given, found: found.detach())
    f = torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    e, _, rec = head(f)
    (slope,) = torch.autograd.grad(e.square().sum() * e[:, 0].sum() + rec.sum(), f, allow_unused=True)
    assert slope is None


def test_where_nobody_speaks_there_is_no_message_and_a_finite_gradient():
    head = relational(6, 4, k=2)
    with torch.no_grad():
        head.edge.bias.fill_(-1e3)
    f = torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    e, nodes, _ = head(f)
    torch.testing.assert_close(e.unflatten(1, (2, 2)), nodes @ head.mix.weight[:, :2].T + head.mix.bias)
    e.square().sum().backward()
    assert all(t.grad is None or t.grad.isfinite().all() for t in (f, *head.parameters()))


def test_relational_is_float32_under_autocast_and_takes_other_types():
    torch.manual_seed(0)
    head, f = heads.Relational(12, 8), torch.randn(5, 12)
    plain = head(f)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(torch.equal(a, b) and b.dtype == torch.float32 for a, b in zip(plain, head(f)))
        assert all(t.dtype == torch.float32 for t in head(f.bfloat16()))
    half = heads.Relational(12, 8).bfloat16()(f.bfloat16())
    assert all(t.dtype == torch.float32 and t.isfinite().all() for t in half)


def test_a_feature_of_zeros_does_no_harm():
    head = heads.Relational(6, 4, k=2)
    f = torch.zeros(3, 6, requires_grad=True)
    e, nodes, rec = head(f)
    (e.sum() + nodes.sum() + rec.sum()).backward()
    assert e.isfinite().all() and f.grad.isfinite().all()


def test_an_embedder_with_relations(tmp_path):
    torch.manual_seed(0)
    embedder = Embedder("features", 8, lambda features, dim: heads.Relational(features, dim, k=2), features=7)
    x = torch.randn(4, 7)
    out = embedder(x)
    torch.testing.assert_close(out.z, F.normalize(out.e, dim=1))
    assert out.nodes.shape == (4, 2, 4) and out.rec.shape == (4, 2)
    assert torch.equal(embedder.eval()(x).z, out.z)


def compiled_and_exported():
    torch.manual_seed(0)
    head, f = heads.Relational(7, 8), torch.randn(5, 7)
    for training in (True, False):
        head.train(training)
        torch._dynamo.reset()
        with torch.autocast("cpu", torch.bfloat16, enabled=training):
            found = torch.compile(head, fullgraph=True, backend="eager")(f)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(head(f), found))
        found[0].sum().backward()
    exported = torch.export.export(head, (f,)).module()
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(head(f), exported(f)))


def test_relational_compiles_as_one_graph_and_exports(bare):
    bare(compiled_and_exported)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dim": 10}, "dim must be a multiple of k, got dim=10 and k=4; use dim=8 or 12, or k=2 or 5"),
        ({"dim": 3}, "got dim=3 and k=4; use dim=4, or k=1 or 3"),
        ({"features": 3}, "features must be at least k=4 .*got features=3; lower k, or use slice_input=False"),
    ],
)
def test_parts_must_fit(settings, says):
    with pytest.raises(LikewiseError, match=f"Relational: .*{says}"):
        heads.Relational(**{"features": 12, "dim": 8} | settings)


def test_slices_by_hand():
    head, f = heads.Slices(7, 6, k=3).double(), torch.randn(5, 7, dtype=torch.float64)
    e, nodes, rec = head(f)
    for row, found in zip(f.tolist(), e.tolist(), strict=True):
        raw = [
            b + sum(w * x for w, x in zip(weights, row, strict=True))
            for weights, b in zip(head.fc.weight.tolist(), head.fc.bias.tolist(), strict=True)
        ]
        expected = [raw[i] / math.hypot(*raw[i - i % 2 : i - i % 2 + 2]) for i in range(6)]
        assert found == pytest.approx(expected)
    assert rec is None and torch.equal(nodes.flatten(1), e)
    with pytest.raises(LikewiseError, match="Slices: dim must be a multiple of k, got dim=8 and k=3"):
        heads.Slices(7, 8, k=3)


def test_compositional_by_hand():
    torch.manual_seed(0)
    head, f = heads.Compositional(7, 6, k=3, parts=4).double(), torch.randn(5, 7, dtype=torch.float64)
    e, nodes, rec = head(f)

    def linear(layer, row):
        return [
            b + sum(w * x for w, x in zip(weights, row, strict=True))
            for weights, b in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        ]

    for i, row in enumerate(f.tolist()):
        h = linear(head.part, row)
        scores = linear(head.mix, h)
        for c in range(3):
            powers = [math.exp(score) for score in scores[4 * c : 4 * c + 4]]
            share = [power / sum(powers) for power in powers]
            mixed = [sum(share[p] * h[2 * p + d] for p in range(4)) for d in range(2)]
            assert nodes[i, c].tolist() == pytest.approx([v / math.hypot(*mixed) for v in mixed])
            assert rec[i, c].item() == pytest.approx(-math.log(max(share)))
    assert torch.equal(nodes.flatten(1), e)


def test_mixtures_do_not_train_the_parts_through_their_shares():
    """The shares read the parts as constants: their cost trains the mixing layer alone."""
    head = heads.Compositional(7, 6, k=3)
    head(torch.randn(5, 7))[2].sum().backward()
    assert head.part.weight.grad is None and head.mix.weight.grad.abs().sum() > 0
