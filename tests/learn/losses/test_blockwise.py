import math

import pytest
import torch
from likewise.contracts import Miner
from likewise.losses import MultiSimilarity
from likewise.losses import _blockwise as engine
from likewise.miners import DistanceWeighted, Random
from likewise.relevance import SharedLabels
from likewise.similarity import cosine, neg_squared
from likewise.types import Ref
from torch.nn import functional as F

from likewise.learn.losses._blockwise import by_rows, triplets


def batch(size=10, dim=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(size, dim, generator=g, dtype=torch.float64), dim=1), torch.arange(size) // 2


def soft(sim, pairs):
    """Some smooth number of a row: its negatives' squared similarities and its positives' plain ones."""
    return (sim.square() * pairs.neg).sum(1) + (sim * pairs.pos).sum(1)


@pytest.fixture
def small_blocks(monkeypatch):
    """Three rows a block, so that ten rows need four."""
    monkeypatch.setattr(engine, "CPU_BLOCK_SIZE", 30)


def test_by_hand(small_blocks):
    z, y = batch()
    each = by_rows(soft, z, y)
    for i in range(10):
        dots = [sum(float(a) * float(b) for a, b in zip(z[i], z[j])) for j in range(10)]
        expected = sum(dots[j] ** 2 for j in range(10) if y[j] != y[i]) + dots[i ^ 1]
        assert math.isclose(each[i].item(), expected, abs_tol=1e-12)


@pytest.mark.parametrize("similarity", [cosine, neg_squared])
@pytest.mark.parametrize("other", [False, True])
def test_gradients_in_blocks_are_those_of_autograd(small_blocks, similarity, other):
    """For the batch against itself and against others, for both similarities, weighted unevenly."""
    z, y = batch()
    z = z.requires_grad_()
    far, labels = batch(7, seed=1)
    ref = Ref(far.requires_grad_(), labels) if other else None
    by = [z] + ([far] if other else [])
    weight = torch.linspace(-1, 3, 10, dtype=torch.float64)
    fast = torch.autograd.grad(by_rows(soft, z, y, ref, similarity=similarity) @ weight, by)
    sim = similarity(z, far if other else z)
    same = y[:, None] == (labels if other else y)[None]
    own = torch.eye(10, dtype=torch.bool) if not other else torch.zeros(10, 7, dtype=torch.bool)
    plain = (sim.square() * ~same).sum(1) + (sim * (same & ~own)).sum(1)
    for a, b in zip(fast, torch.autograd.grad(plain @ weight, by)):
        torch.testing.assert_close(a, b)


def test_gradient_of_the_gradient(small_blocks):
    z, y = batch()
    work = lambda z: by_rows(soft, z, y)  # noqa: E731
    assert torch.autograd.gradcheck(work, z.requires_grad_())
    assert torch.autograd.gradgradcheck(work, z)


def test_the_gradient_of_the_gradient_draws_what_forward_drew(small_blocks):
    """A drawing choice inside a row: recording must meet the same random numbers again."""

    def drawn(sim, pairs):
        return (sim.square() * torch.rand(sim.shape, dtype=sim.dtype)).sum(1)

    z, y = batch()
    z = z.requires_grad_()
    torch.manual_seed(0)
    (first,) = torch.autograd.grad(by_rows(drawn, z, y).sum(), z)
    torch.manual_seed(0)
    value = by_rows(drawn, z, y).sum()
    torch.rand(5)  # somebody else draws in between
    state = torch.get_rng_state()
    (second,) = torch.autograd.grad(value, z, create_graph=True)
    torch.testing.assert_close(first, second)
    assert torch.equal(state, torch.get_rng_state()) and second.requires_grad


def test_counts_make_the_mean_that_of_the_terms():
    z, y = batch()
    each = by_rows(lambda sim, pairs: (sim.sum(1), torch.arange(len(sim))), z, y)
    assert math.isclose(each.mean().item(), (z @ z.T).sum().item() / sum(range(10)), rel_tol=1e-12)


def test_unused_rows_of_a_reference_are_nobodys_partner():
    z, y = batch()
    used = torch.arange(10) < 6
    ref = Ref(z, y, torch.arange(10), used)
    whole = by_rows(lambda sim, pairs: (pairs.pos | pairs.neg).sum(1).to(sim), z, y, ref)
    assert whole.tolist() == [5.0] * 6 + [6.0] * 4


class Sizes(Miner):
    """Notes how many rows it is shown at a time."""

    def __init__(self, whole):
        self.whole, self.seen = whole, []

    def __call__(self, sim, pairs, dim, margin=None):
        self.seen.append(len(sim))
        return Random()(sim, pairs, dim, margin)


def test_triplets_of_blocks_speak_of_the_batch(small_blocks):
    z, y = batch()
    for whole, sizes in ((False, [3, 3, 3, 1]), (True, [10])):
        miner = Sizes(whole)
        t = triplets(z, y, None, miner)
        assert miner.seen == sizes and t.a.tolist() == list(range(10))
        assert (y[t.a] == y[t.p]).all() and (t.a != t.p).all() and (y[t.a] != y[t.n]).all() and t.valid.all()


def test_triplets_carry_no_gradient():
    z, y = batch()
    t = triplets(z.requires_grad_(), y, None, DistanceWeighted())
    assert not any(v.requires_grad for v in (t.a, t.p, t.n, t.valid, t.pull))


def test_a_large_batch_in_blocks_equals_one_block(monkeypatch):
    g = torch.Generator().manual_seed(0)
    y = torch.arange(600) // 3
    z = F.normalize(torch.randn(600, 16, generator=g, dtype=torch.float64), dim=1).requires_grad_()
    blocks = MultiSimilarity()(z, y)
    (slope,) = torch.autograd.grad(blocks.mean(), z)
    monkeypatch.setattr(engine, "CPU_BLOCK_SIZE", 2**30)
    whole = MultiSimilarity()(z, y)
    torch.testing.assert_close(blocks, whole)
    torch.testing.assert_close(slope, torch.autograd.grad(whole.mean(), z)[0])


def test_the_graph_can_be_used_twice():
    z, y = batch()
    value = MultiSimilarity()(z.requires_grad_(), y).mean()
    first = torch.autograd.grad(value, z, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(value, z)[0], first)


def test_a_relevance_in_blocks_is_that_of_the_whole_batch(small_blocks):
    """With and without a reference; the sets of labels are compared with a reference that is prepared once."""
    z, y = batch()
    relevance = SharedLabels([(0, 1), (1, 2), (0, 1, 2), (3,), (1, 3)])
    seen = []

    def rows(sim, pairs):
        seen.append(pairs)
        return (sim * pairs.value * pairs.pos).sum(1)

    for ref in (None, Ref(z, y, torch.arange(10))):
        seen.clear()
        by_rows(rows, z, y, ref, relevance=relevance)
        found, whole = (torch.cat([getattr(p, name) for p in seen]) for name in ("pos", "value")), relevance.pairs(y, y)
        pos, value = found
        assert len(seen) == 4 and torch.equal(value, whole.value)
        assert torch.equal(pos, whole.pos & ~torch.eye(10, dtype=torch.bool))
