"""Acting on influence: heads that learn at once against heads trained one by one, tests by counting, gains beyond chance."""

from itertools import product

import numpy as np
import pytest
import torch
from likewise.types import Embedded, LikewiseError
from scipy.special import stdtr
from torch.nn import functional as F

from likewise import losses
from likewise.core.settings.spec import build
from likewise.curate.audit import influence as inf
from likewise.curate.audit import intervention as ver

DIM, FEATURES, CLASSES, N = 5, 7, 4, 48
PAIR = torch.tensor([[0, 1], [2, 3], [0, 4], [5, 6]])
SIGN = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
GROUP = torch.tensor([1, 0, 1, 1])


def head():
    torch.manual_seed(7)
    return torch.nn.Linear(FEATURES, DIM, dtype=torch.float64)


def embedded(n, seed):
    draw = torch.Generator().manual_seed(seed)
    f, y = torch.randn(n, FEATURES, generator=draw, dtype=torch.float64), torch.arange(n) % CLASSES
    e = head()(f).detach()
    return Embedded(F.normalize(e, dim=1), y, torch.arange(n), e, f)


def loss_named(name, y):
    torch.manual_seed(3)
    needs = {"CrossBatchMemory": "CrossBatchMemory(size=4)", "Hierarchical": "Hierarchical(loss=ProxyNCA(), coarse=2)"}
    facts = {"classes": CLASSES, "dim": DIM, "seed": 0, "steps": 10, "labels": y.numpy()}
    return build(needs.get(name, f"{name}()"), **facts).double()


def weights(lines, seed=5):
    return torch.randint(0, 3, (lines, N), generator=torch.Generator().manual_seed(seed)).double()


def moved_by_hand(loss, train, test, w, members, batches, lr, clip):
    """One head, its own optimiser, one batch after another; then the pairs, one at a time."""
    layer, loss = head(), loss.eval()
    layer.bias.requires_grad_(False)
    adam = torch.optim.Adam(layer.parameters(), lr=lr)

    def distance():
        with torch.no_grad():
            e = layer(test.f)
            z = F.normalize(e, dim=1) if loss.input == "unit" else e
            return sum(SIGN[p] * (z[PAIR[p, 0]] - z[PAIR[p, 1]]).square().sum() for p in members) / len(members)

    before = distance()
    torch.manual_seed(0)
    for rows in batches:
        e = layer(train.f[rows])
        each = loss(F.normalize(e, dim=1) if loss.input == "unit" else e, train.y[rows])
        (gradient,) = torch.autograd.grad(sum(w[n] * own for n, own in zip(rows, each)) / len(rows), layer.weight)
        layer.weight.grad = gradient.clamp(-clip, clip)
        adam.step()
    return distance() - before


@pytest.mark.parametrize("name", losses.__all__)
def test_heads_that_learn_at_once_learn_as_if_alone(name):
    train, test = embedded(N, 0), embedded(9, 4)
    loss = loss_named(name, train.y)
    state = {k: v.clone() for k, v in loss.state_dict().items()}
    w, batches = weights(2), inf.balanced_batches(train.y, 16, 4)
    found = ver.gains(loss, train, test, PAIR, SIGN, w, GROUP, lr=0.01, clip=0.02, batches=batches)
    assert all(torch.equal(v, state[k]) for k, v in loss.state_dict().items())
    for q, members in enumerate([[1], [0, 2, 3]]):
        want = moved_by_hand(loss, train, test, w[q], members, batches, 0.01, 0.02)
        torch.testing.assert_close(found[q], want, rtol=1e-6, atol=1e-9)


def test_blocks_of_heads_and_one_line_for_all_change_nothing():
    train, test = embedded(N, 0), embedded(9, 4)
    loss, w = loss_named("ProxyNCA", train.y), weights(4)
    whole = ver.gains(loss, train, test, PAIR, SIGN, w, lr=0.01)
    torch.testing.assert_close(ver.gains(loss, train, test, PAIR, SIGN, w, lr=0.01, budget=2500), whole)
    assert len(set(whole.tolist())) == 4
    one = ver.gains(loss, train, test, PAIR, SIGN, w[:1], lr=0.01)
    torch.testing.assert_close(one, ver.gains(loss, train, test, PAIR, SIGN, w[:1].expand(4, -1), lr=0.01))
    torch.testing.assert_close(one[0], whole[0])


def test_miners_draw_the_same_and_leave_the_callers_draws_alone():
    train, test = embedded(N, 0), embedded(9, 4)
    loss = loss_named("Triplet", train.y)
    torch.manual_seed(11)
    first = ver.gains(loss, train, test, PAIR, SIGN, weights(4), lr=0.01)
    drawn = torch.rand(1)
    assert torch.equal(first, ver.gains(loss, train, test, PAIR, SIGN, weights(4), lr=0.01))
    torch.manual_seed(11)
    assert torch.equal(drawn, torch.rand(1))


def test_acting_on_influence_repairs_more_than_chance():
    train, test = embedded(N, 0), embedded(40, 4)
    loss = loss_named("ProxyNCA", train.y)
    pair = torch.arange(40).reshape(20, 2)
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(10)
    score = inf.influence(inf.repairs(test, pair, sign), inf.embedding_gradients(loss, train), train.f)
    ways = {"first order": score, "its reverse": -score}
    found = ver.verify(loss, train, test, pair, sign, ways, lr=1e-3)
    assert list(found) == ["first order", "its reverse", ver.RANDOM_SIGNS, ver.NO_WEIGHTS]
    assert (found["first order"] > found["its reverse"]).all()
    for other in (ver.RANDOM_SIGNS, ver.NO_WEIGHTS):
        assert ver.paired(found["first order"], found[other]).p < 1e-3
    again = ver.verify(loss, train, test, pair, sign, ways, lr=1e-3, seed=1)
    assert not np.array_equal(again[ver.RANDOM_SIGNS], found[ver.RANDOM_SIGNS])
    np.testing.assert_allclose(
        found[ver.NO_WEIGHTS], ver.gains(loss, train, test, pair, sign, torch.ones(1, N), lr=1e-3), rtol=1e-9
    )


def test_weights_are_two_for_helpful_none_for_harmful_and_random_ones_are_as_many(monkeypatch):
    seen = []

    def watch(loss, train, test, pair, sign, weight, *rest, **how):
        seen.append(weight)
        return torch.zeros(4)

    monkeypatch.setattr(ver, "gains", watch)
    train, test = embedded(N, 0), embedded(9, 4)
    score = torch.randn(4, N, generator=torch.Generator().manual_seed(2))
    score[:, 0] = 0
    ver.verify(loss_named("ProxyNCA", train.y), train, test, PAIR, SIGN, {"a": score})
    for n in range(N):
        assert all(seen[0][q, n] == (1 if n == 0 else 2 if score[q, n] < 0 else 0) for q in range(4))
    assert torch.equal(seen[1].sort(1).values, seen[0].sort(1).values) and not torch.equal(seen[1], seen[0])
    assert torch.equal(seen[2], torch.ones(1, N))


def test_the_tests_by_hand():
    ours, other = np.asarray([1.0, 2.5, 3.0, 4.5, 0.5]), np.asarray([0.5, 1.0, 3.25, 2.0, 0.25])
    gap = ours - other
    gain = ver.paired(ours, other)
    t = gap.mean() / (gap.std(ddof=1) / 5**0.5)
    assert gain.mean == pytest.approx(gap.mean()) and gain.p == pytest.approx(1 - stdtr(4, t))
    assert gain.low < gain.mean < gain.high
    gap = np.asarray([0.5, 1.5, -0.25, 2.5, 0.75])
    rank = np.abs(gap).argsort().argsort() + 1
    real = sum(r for r, g in zip(rank, gap) if g > 0)  # how often do random signs have so high a sum of ranks?
    sums = [sum(r for r, s in zip(rank, signs) if s) for signs in product((0, 1), repeat=5)]
    assert ver.paired(gap, np.zeros(5), grouped=True).p == pytest.approx(np.mean([s >= real for s in sums]))
    assert ver.paired(ours, ours).p is None and ver.paired(ours[:1], other[:1]).p is None


def test_what_is_told():
    changes = {"first order": np.asarray([0.2, 0.4, 0.3]), "random signs": np.asarray([0.0, 0.1, 0.3])}
    found = ver.summary(changes)
    assert found["pairs"] == 3 and [r["method"] for r in found["rows"]] == list(changes)
    first, second = found["rows"]
    assert first["mean"] == pytest.approx(0.3) and first["p"] is None and first["low"] < 0.3 < first["high"]
    assert second["p"] == ver.paired(*changes.values()).p
    assert "of 3 pairs improved by +0.3000" in found["summary"]
    assert "+0.1667 compared with random signs" in found["summary"]
    single = ver.summary({way: change[:1] for way, change in changes.items()}, grouped=True)
    assert single["rows"][1]["p"] is None and single["rows"][0]["low"] is None and "1 groups" in single["summary"]


def test_bad_input():
    train, test = embedded(N, 0), embedded(9, 4)
    loss = loss_named("ProxyNCA", train.y)
    with pytest.raises(LikewiseError, match="verify: scores must have one method or more, got none"):
        ver.verify(loss, train, test, PAIR, SIGN, {})
    with pytest.raises(LikewiseError, match=r"4 rows \(errors\) or one, got shape \(3, 48\)"):
        ver.gains(loss, train, test, PAIR, SIGN, weights(3))
    with pytest.raises(LikewiseError, match="diverged with lr=inf; lower lr"):
        ver.gains(loss, train, test, PAIR, SIGN, weights(4), lr=float("inf"))
