"""Hyperbolic distances, against the printed formula of the Poincare ball, and every pair loss that can be measured in them."""

import inspect
import math

import pytest
import torch
from likewise.contracts import Miner
from likewise.types import LikewiseError, Tuples
from torch.nn import functional as F

from likewise import losses
from likewise.core.settings.spec import build
from likewise.learn.losses._hyperbolic import (
    DISTANCE_UNIT,
    SPACES_BY_NAME,
    hyperbolic_distance,
    hyperbolic_similarity,
    neg_hyperbolic,
)

NO_SPACE = {
    "Angular": "raw embeddings, and an angle in place of a distance",
    "GeneralizedLifted": "raw embeddings, whose lengths count",
    "LiftedStructure": "raw embeddings, whose lengths count",
    "NPair": "dot products of raw embeddings",
    "SNR": "a ratio of variances, which is no distance",
}
"""Losses of pairs that cannot have a `space`, and why. A new loss may do without one too."""


def in_the_ball(v):
    """The exponential map at 0: tanh|v| in the direction of v."""
    size = math.sqrt(sum(x * x for x in v))
    return [math.tanh(size) * x / size for x in v]


def apart(u, v):
    gap = sum((a - b) ** 2 for a, b in zip(u, v))
    room = (1 - sum(a * a for a in u)) * (1 - sum(b * b for b in v))
    return math.acosh(1 + 2 * gap / room)


def test_by_hand_for_vectors_of_any_length():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(5, 4, generator=g, dtype=torch.float64)
    b = torch.randn(7, 4, generator=g, dtype=torch.float64) * 2
    expected = [[-apart(in_the_ball(u), in_the_ball(v)) for v in b.tolist()] for u in a.tolist()]
    torch.testing.assert_close(neg_hyperbolic(a, b), torch.tensor(expected, dtype=torch.float64))


def test_unit_vectors_are_0_to_4_apart_and_a_cosine_of_a_half_is_2_7():
    axes = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.5, math.sqrt(0.75)]])
    d = -neg_hyperbolic(axes[:1], axes)[0]
    torch.testing.assert_close(d, torch.tensor([0.0, 4.0, 2.7139]), rtol=0, atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_slope_where_vectors_coincide_or_vanish(dtype):
    z = F.normalize(torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=dtype), dim=1)
    for given in (z[[0, 0, 1, 1]], torch.zeros(4, 3, dtype=dtype), 15 * z):
        given = given.clone().requires_grad_()
        found = neg_hyperbolic(given, given)
        found.sum().backward()
        assert torch.isfinite(found).all() and torch.isfinite(given.grad).all()


def test_slope():
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: neg_hyperbolic(z[:2], z[2:]), z)


def test_of_the_cosine_it_is_the_same_distance():
    z = F.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64), dim=1)
    sim, d = z[:4] @ z[4:].T, -neg_hyperbolic(z[:4], z[4:])
    torch.testing.assert_close(hyperbolic_distance(sim), d)
    torch.testing.assert_close(SPACES_BY_NAME["hyperbolic"].squared(sim), d.square())
    torch.testing.assert_close(hyperbolic_similarity(sim), 1 - d / (2 * 2.7138889801486132))
    assert torch.autograd.gradcheck(hyperbolic_similarity, sim.requires_grad_())


def test_the_ends_and_the_middle_of_a_space():
    ends = torch.tensor([1.0, 0.5, -1.0], dtype=torch.float64)
    for space, middle in (("cosine", 1.0), ("hyperbolic", DISTANCE_UNIT)):
        of = SPACES_BY_NAME[space]
        expected = torch.tensor([0, middle, of.furthest]).double()
        torch.testing.assert_close(of.distance(ends), expected, rtol=0, atol=1e-3)
        torch.testing.assert_close(of.squared(ends), expected.square(), rtol=0, atol=1e-3)
        expected = torch.tensor([1, 0.5, of.least]).double()
        torch.testing.assert_close(of.similarity(ends), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_slope_of_the_cosine_at_both_ends_and_beyond(dtype):
    sim = torch.tensor([1.0, 1 + 1e-6, 1 - 1e-7, -1.0, -1 - 1e-6], dtype=dtype, requires_grad=True)
    for measure in SPACES_BY_NAME["hyperbolic"][:3]:
        (slope,) = torch.autograd.grad(measure(sim).sum(), sim)
        assert torch.isfinite(slope).all() and slope[3] != 0


class Next(Miner):
    """Every anchor with its first class mate and its first stranger."""

    def __call__(self, sim, pairs, dim, margin=None):
        has = pairs.pos.any(1)
        first_mate, first_stranger = (kind.int().argmax(1) for kind in (pairs.pos, pairs.neg))
        return Tuples(torch.arange(len(sim)), first_mate, first_stranger, has, torch.ones_like(has))


Z = F.normalize(torch.randn(10, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64), dim=1)
Y = [0, 0, 0, 1, 1, 1, 2, 2, 0, 1]
D = (-neg_hyperbolic(Z, Z)).tolist()
S = [[1 - d / (2 * DISTANCE_UNIT) for d in row] for row in D]
POS = [[j for j in range(10) if j != i and Y[j] == Y[i]] for i in range(10)]
NEG = [[j for j in range(10) if Y[j] != Y[i]] for i in range(10)]
HERE = range(10)


def mean(values):
    values = list(values)
    return sum(values) / max(len(values), 1)


def hinge(x):
    return max(0.0, x)


def shares(values, nodes, top):
    """A histogram over 0..top; each value is shared between the two nodes around it."""
    bars = [0.0] * nodes
    for v in values:
        place = min(v / top * (nodes - 1), nodes - 1 - 1e-12)
        bars[int(place)] += 1 - (place - int(place))
        bars[int(place) + 1] += place - int(place)
    return bars


def contrastive(i):
    near = [2.7 - D[i][n] for n in NEG[i] if D[i][n] < 2.7]
    return mean(hinge(D[i][p] - 0.3) for p in POS[i]) + mean(near)


def triplet(i, power=1):
    return hinge(D[i][POS[i][0]] ** power - D[i][NEG[i][0]] ** power + 0.5)


def margin(i):
    pull, push = hinge(D[i][POS[i][0]] - 2.8 + 0.2), hinge(2.8 - D[i][NEG[i][0]] + 0.2)
    active = sum((D[a][POS[a][0]] > 2.6) + (D[a][NEG[a][0]] < 3.0) for a in HERE)
    return (pull + push) * 10 / active


def multi_similarity(i):
    pull = math.log(1 + sum(math.exp(-2 * (S[i][p] - 0.5)) for p in POS[i])) / 2
    return pull + math.log(1 + sum(math.exp(40 * (S[i][n] - 0.5)) for n in NEG[i])) / 40


def circle(i):
    push = sum(math.exp(80 * hinge(S[i][n] + 0.4) * (S[i][n] - 0.4)) for n in NEG[i])
    return math.log(1 + push * sum(math.exp(-80 * hinge(1.4 - S[i][p]) * (S[i][p] - 0.6)) for p in POS[i]))


def sup_con(i):
    everybody = sum(math.exp(S[i][j] / 0.1) for j in POS[i] + NEG[i])
    return -mean(math.log(math.exp(S[i][p] / 0.1) / everybody) for p in POS[i])


def smooth_ap(i):
    def rank(k, among):
        return 1 + sum(1 / (1 + math.exp((S[i][k] - S[i][j]) / 0.1)) for j in among if j != k)

    return 1 - mean(rank(k, POS[i]) / rank(k, POS[i] + NEG[i]) for k in POS[i])


def fast_ap(i):
    pos, every = (shares([D[i][j] for j in of], 11, 4) for of in (POS[i], POS[i] + NEG[i]))
    found = sum(p * sum(pos[: r + 1]) / max(sum(every[: r + 1]), 1e-30) for r, p in enumerate(pos))
    return 1 - found / len(POS[i])


def histogram(i):
    pos = shares([4 - D[a][p] for a in HERE for p in POS[a]], 65, 4)
    neg = shares([4 - D[i][n] for n in NEG[i]], 65, 4)
    below = [sum(pos[: r + 1]) / sum(pos) for r in range(65)]
    return 10 / sum(len(NEG[a]) for a in HERE) * sum(n * b for n, b in zip(neg, below))


def pair_super_loss(i):
    """With a large lam all weights are 1."""
    pull = [[hinge(D[a][p] - 0.3) for p in POS[a]] for a in HERE]
    push = [[hinge(2.7 - D[a][n]) for n in NEG[a]] for a in HERE]
    return sum(10 * sum(kind[i]) / sum(v > 0 for row in kind for v in row) for kind in (pull, push))


BY_HAND = {
    "Contrastive(margin=2.7, pull_margin=0.3)": contrastive,
    "Contrastive(margin=2.7, miner=SemiHard())": lambda i: D[i][POS[i][0]] + hinge(2.7 - D[i][NEG[i][0]]),
    "Triplet(margin=0.5)": triplet,
    "Triplet(margin=0.5, squared=True)": lambda i: triplet(i, 2),
    "Margin(classes=3, beta=2.8)": margin,
    "MultiSimilarity(miner=None)": multi_similarity,
    "Circle()": circle,
    "SupCon()": sup_con,
    "SmoothAP(temperature=0.1)": smooth_ap,
    "FastAP()": fast_ap,
    "Histogram()": histogram,
    "PairSuperLoss(lam=1e9, margin=2.7, pull_margin=0.3)": pair_super_loss,
}


@pytest.mark.parametrize("text", BY_HAND)
def test_losses_by_hand(text):
    loss = build(text[:-1] + ("space='hyperbolic')" if text.endswith("()") else ", space='hyperbolic')")).double()
    if getattr(loss, "miner", None) is not None:
        loss.miner = Next()
    expected = torch.tensor([BY_HAND[text](i) for i in HERE], dtype=torch.float64)
    torch.testing.assert_close(loss(Z, torch.tensor(Y)).detach(), expected)


def test_quadruplet_by_hand():
    """Two samples of two classes and one of a third, which is the fourth corner of all."""
    four = [(0, 1, 2), (1, 0, 2), (2, 3, 0), (3, 2, 0)]
    each = [hinge(D[a][p] - D[a][n] + 1) + hinge(D[a][p] - D[4][n] + 0.5) for a, p, n in four]
    found = losses.Quadruplet(miner=Next(), space="hyperbolic")(Z[:5], torch.tensor([0, 0, 1, 1, 2]))
    torch.testing.assert_close(found, torch.tensor([*each, 0.0], dtype=torch.float64) * 5 / 4)


def arguments(name):
    return inspect.signature(getattr(losses, name)).parameters


def pair_losses():
    """All but those around another loss, and those that compare with what they keep (proxies, a memory) and so ask for `dim`."""
    return [name for name in losses.__all__ if not {"dim", "loss"} & arguments(name).keys()]


def with_space():
    return [name for name in pair_losses() if "space" in arguments(name)]


def test_a_pair_loss_with_a_space_is_checked_by_hand():
    by_hand = {text.split("(")[0] for text in BY_HAND} | {
        "Quadruplet",
        "AdaptiveHierarchical",
    }  # the last in its own file
    assert set(with_space()) == by_hand and NO_SPACE.keys().isdisjoint(by_hand)
    for name in with_space():
        *_, last = arguments(name).values()
        assert (last.name, last.default) == ("space", "cosine")


@pytest.mark.parametrize("text", ["Contrastive(margin={})", "PairSuperLoss(margin={})", "Margin(classes=3, beta={})"])
def test_margins_reach_as_far_as_the_space(text):
    there = text[:-1] + ", space='hyperbolic')"
    build(there.format(3.9))
    for wrong, value, most in ((text, 3.9, 2), (there, 4.1, 4)):
        with pytest.raises(LikewiseError, match=f"{most}, the largest distance .*{value}"):
            build(wrong.format(value))
