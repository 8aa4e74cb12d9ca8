"""DiVA: every task by hand, the weights of the keys, and a training that resumes exactly."""

import math

import pytest
import torch
from likewise.contracts import Miner
from likewise.losses import MultiSimilarity, Triplet
from likewise.similarity import batch_masks
from likewise.terms import DiVA
from likewise.types import Batch, LikewiseError, Tuples
from torch.nn import functional as F

from likewise.learn.terms.di_va import SameClass
from likewise.models import Embedder
from likewise.models.heads import Slices

DIM = 5


class First(Miner):
    """The first positive and the first negative of every anchor."""

    def __call__(self, sim, pairs, dim, margin=None):
        a = torch.arange(len(sim))
        valid = pairs.pos.any(1) & pairs.neg.any(1)
        return Tuples(a, pairs.pos.byte().argmax(1), pairs.neg.byte().argmax(1), valid, torch.ones_like(valid))


def made(**changes):
    torch.manual_seed(0)
    network = Embedder("features", 4 * DIM, lambda features, dim: Slices(features, dim, k=4), features=7)
    term = DiVA(lambda dim: Triplet(miner=First()), network, **({"memory": 6, "rho": 2.0, "hidden": 8} | changes))
    return term, network


def batch(size=6, views=1, seed=1):
    x = torch.randn(size * views, 7, generator=torch.Generator().manual_seed(seed))
    y, row = (torch.arange(size) // 2).repeat(views), torch.arange(size).repeat(views)
    return Batch(x, y, row)


def dot(u, v):
    return sum(a * b for a, b in zip(u, v, strict=True))


def weights_by_hand(query, keys, upper=1.4, lower=0.5):
    found = []
    for key in keys:
        d = math.sqrt(max(0.0, 2 - 2 * dot(query, key)))
        inverse = max(d, lower) ** (2 - DIM) * (1 - max(d, lower) ** 2 / 4) ** ((3 - DIM) / 2)
        found.append(inverse if d <= upper else 0.0)
    return [w / (sum(found) or 1) for w in found]


def contrast_by_hand(query, key, keys, temperature):
    near = math.exp(dot(query, key) / temperature)
    far = sum(
        math.exp(w * dot(query, m) / temperature) for w, m in zip(weights_by_hand(query, keys), keys, strict=True)
    )
    return -math.log(near / (near + far))


def test_the_task_of_single_images_by_hand():
    """The first step has an empty memory and the value 0, the second one the keys of the first."""
    term, network = made(temperature=0.3, memory=8)
    first, second = batch(), batch(seed=2)
    with torch.no_grad():
        keys = network(first.x).nodes[:, 1]
        assert term.contrast(keys, keys).tolist() == pytest.approx([0] * 6)
        term(network(first.x), first)
        term.after_step(1)
        query, key = network(second.x).nodes[:, 1], F.normalize(network(second.x).nodes[:, 1] + 0.3, dim=1)
        found = term.contrast(query, key)
    assert int(term.filled) == 6 and torch.allclose(term.keys[:6], keys)
    beyond = 0
    for q, k, value in zip(query.tolist(), key.tolist(), found.tolist(), strict=True):
        assert value == pytest.approx(contrast_by_hand(q, k, keys.tolist(), 0.3), rel=1e-4)
        beyond += weights_by_hand(q, keys.tolist()).count(0.0)
    assert beyond  # some keys are too far, with the weight 0


def test_all_tasks_add_up():
    term, network = made(alpha=0.5, rho=3.0)
    b = batch()
    out = network(b.x)
    classes, single, shared, inside = out.nodes.unbind(1)
    keys = term.teacher(b.x).nodes[:, 1]
    torch.manual_seed(3)
    found = term(out, b)
    torch.manual_seed(3)
    order = torch.randperm(6)
    loss = Triplet(miner=First())
    expected = loss(classes, b.y) + 0.5 * (term.contrast(single, keys) + loss(shared, b.y[order]))
    expected = expected + 0.5 * term.losses[2](inside, b.y)
    for g, e in zip(term.decorrelations, (single, shared, inside), strict=True):
        expected = expected + 3 * g(e, classes)
    torch.testing.assert_close(found, expected)


def test_keys_come_from_the_second_view_and_losses_from_the_first():
    term, network = made(views=2)
    b = batch(views=2)
    out = network(b.x)
    torch.manual_seed(3)
    both = term(out, b)
    torch.testing.assert_close(term.pending, term.teacher(b.x[6:]).nodes[:, 1])
    other = b._replace(y=torch.cat([b.y[:6], torch.zeros(6, dtype=torch.int64)]))
    torch.manual_seed(3)
    assert torch.equal(both, term(out, other)) and torch.equal(both[:6], both[6:])


def test_the_teacher_follows_with_its_momentum():
    term, network = made(momentum=0.5)
    before = network.head.fc.weight.detach().clone()
    with torch.no_grad():
        network.head.fc.weight += 1
    for step in range(1, 30):
        term.after_step(step)
    torch.testing.assert_close(term.teacher.network.head.fc.weight, before + 1, rtol=0, atol=1e-3)


def test_triplets_of_one_class(subtests):
    """Classes of 1, 2 and 5 samples are equally likely, and samples of a class too; some triplets repeat a sample."""
    y = torch.repeat_interleave(torch.arange(3), torch.tensor([1, 2, 5]))
    torch.manual_seed(0)
    drawn = [SameClass()(torch.zeros(8, 8), batch_masks(y), 4, 0.2) for _ in range(600)]
    a, p, n = (torch.cat([getattr(t, name) for t in drawn]) for name in "apn")
    assert torch.equal(y[a], y[p]) and torch.equal(y[a], y[n])
    for name, rows in (("a", a), ("p", p), ("n", n)):
        with subtests.test(name):
            share = torch.bincount(rows, minlength=8) / len(rows)
            expected = torch.tensor([1 / 3, *[1 / 6] * 2, *[1 / 15] * 5])
            assert (share - expected).abs().max() < 0.03  # 4,800 draws: deviation below 0.007
    assert (a == p).any() and (a != p).any() and (p != n).any()


def test_errors():
    network = Embedder("features", 8, lambda features, dim: Slices(features, dim, k=2), features=7)
    with pytest.raises(LikewiseError, match="4 slices, got Slices with k=2; .*--head 'Slices"):
        DiVA(lambda dim: Triplet(), network)
    _, network = made()
    with pytest.raises(LikewiseError, match="one of triplets, got MultiSimilarity; use Margin"):
        DiVA(lambda dim: MultiSimilarity(), network)
    term, network = made(views=2)
    with pytest.raises(LikewiseError, match="every image 2 times, got 5 samples"):
        term(network(batch(5).x), batch(5))
