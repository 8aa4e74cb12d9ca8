"""Adaptive hierarchical similarity: margins and moving class means by hand, in both spaces, with views of one picture."""

import copy
import math

import pytest
import torch
from torch.nn import functional as F

from likewise.losses import AdaptiveHierarchical, CrossBatchMemory, MultiSimilarity
from likewise.types import LikewiseError, Ref

CLASSES, MOMENTUM = 6, 0.9


def near(u, v, space):
    cos = sum(a * b for a, b in zip(u.tolist(), v.tolist()))
    if space == "cosine":
        return cos
    r = math.tanh(1)
    return -math.acosh(1 + 2 * 2 * r * r * max(0, 1 - cos) / (1 - r * r) ** 2)


def class_means(sim, y, picture, known):
    """`known` (class, class) -> mean, moved on by this batch."""
    found = dict(known)
    for a in range(CLASSES):
        for b in range(CLASSES):
            met = [
                sim[i][j] for i in range(len(y)) for j in range(len(y))
                if (y[i], y[j]) == (a, b) and i != j and picture[i] != picture[j]
            ]  # fmt: skip
            if met:
                now = sum(met) / len(met)
                found[a, b] = MOMENTUM * known[a, b] + (1 - MOMENTUM) * now if (a, b) in known else now
    return found


def brought(value, among, width):
    least, most = min(among), max(among)
    return width * (value - least) / max(most - least, 1e-4)


def by_hand(z, y, known=(), views=1, space="cosine", alpha=2.0, beta=40.0, rho=2.0, gamma=0.5, width=0.2):
    """Numbers of every sample, and the means after this batch."""
    y, size = y.tolist(), len(y)
    picture = [i % (size // views) for i in range(size)]
    sim = [[near(z[i], z[j], space) for j in range(size)] for i in range(size)]
    means = class_means(sim, y, picture, dict(known))
    mates = [[j for j in range(size) if y[j] == y[i] and picture[j] != picture[i]] for i in range(size)]
    others = [[j for j in range(size) if y[j] != y[i]] for i in range(size)]
    within = [means[y[i], y[i]] for i in range(size) if mates[i]]
    between = [means[y[i], y[j]] for i in range(size) for j in others[i]]
    each = []
    for i in range(size):
        total = 1.0
        for j in mates[i]:
            total += math.exp(-alpha * (sim[i][j] - gamma - brought(means[y[i], y[i]], within, width)))
        value = math.log(total) / alpha
        total = 1.0
        for j in others[i]:
            total += math.exp(beta * (sim[i][j] - gamma + brought(means[y[i], y[j]], between, width)))
        value += math.log(total) / beta
        least = min([sim[k][j] for k in range(size) if y[k] == y[i] for j in mates[k]], default=gamma)
        twins = [j for j in range(size) if j != i and picture[j] == picture[i]]
        each.append(value + math.log(1 + sum(math.exp(-rho * (sim[i][j] - least)) for j in twins)) / rho)
    return torch.tensor(each, dtype=torch.float64), means


def batch(seed, y=(0, 0, 1, 1, 1, 4, 4, 5), dim=4):
    g = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(len(y), dim, generator=g, dtype=torch.float64), dim=1), torch.tensor(y)


@pytest.mark.parametrize(("space", "gamma"), [("cosine", 0.5), ("hyperbolic", -2.7)])
@pytest.mark.parametrize("views", [1, 2])
def test_by_hand_batch_after_batch(space, gamma, views):
    loss = AdaptiveHierarchical(classes=CLASSES, views=views, space=space).double()
    known, labels = {}, [(0, 0, 1, 1, 1, 4, 4, 5), (2, 2, 3, 3, 0, 0, 4, 4), (0, 0, 1, 1, 4, 4, 5, 5)]
    for step, y in enumerate(labels, 1):
        y = y if views == 1 else y[:4] * 2  # two pictures a class, then again, the second views of them
        z, y = batch(step, y)
        expected, known = by_hand(z, y, known, views, space, gamma=gamma)
        torch.testing.assert_close(loss(z, y), expected)
        loss.after_step(step)
        for a in range(CLASSES):
            for b in range(CLASSES):
                assert float(loss.means[a, b]) == pytest.approx(known.get((a, b), math.inf))


def test_other_settings_by_hand():
    arguments = {"alpha": 1.5, "beta": 10.0, "rho": 4.0, "gamma": 0.3, "width": 0.5}
    z, y = batch(5, (0, 1, 1, 2) * 2)
    found = AdaptiveHierarchical(classes=CLASSES, views=2, **arguments).double()(z, y)
    torch.testing.assert_close(found, by_hand(z, y, views=2, **arguments)[0])


def test_without_width_it_is_multi_similarity_without_a_miner(golden):
    found = AdaptiveHierarchical(classes=6, width=0.0).double()(golden.z, golden.y)
    torch.testing.assert_close(found, MultiSimilarity(miner=None)(golden.z, golden.y))


def test_views_hold_together_whatever_else_is_there():
    """Two views of one picture, alone with its label: pulled with gamma for a margin."""
    z, y = batch(3, (0, 1, 0, 1))
    found = AdaptiveHierarchical(classes=CLASSES, views=2, beta=1e3).double()(z, y)
    for i in range(4):
        s, push = near(z[i], z[(i + 2) % 4], "cosine"), 1.0
        for j in range(4):
            if y[i] != y[j]:
                push += math.exp(1e3 * (near(z[i], z[j], "cosine") - 0.5))
        assert float(found[i]) == pytest.approx(math.log(1 + math.exp(-2 * (s - 0.5))) / 2 + math.log(push) / 1e3)


def test_margins_are_constants():
    z, y = batch(1)
    loss = AdaptiveHierarchical(classes=CLASSES).double()
    fixed = copy.deepcopy(loss)

    def means(sim, *_):
        return of_batch

    of_batch = loss._means(z @ z.T, y, y, ~torch.eye(8, dtype=torch.bool)).detach()
    fixed._means = means
    slopes = []
    for part in (loss, fixed):
        x = z.clone().requires_grad_()
        part(x, y).mean().backward()
        slopes.append(x.grad)
    torch.testing.assert_close(*slopes)


def test_views_are_found_in_a_reference_too():
    z, y = batch(4, (0, 1, 1, 2) * 2)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    own = order.argsort()
    loss = AdaptiveHierarchical(classes=CLASSES, views=2).double()
    torch.testing.assert_close(loss(z, y, Ref(z[order], y[order], own)), loss(z, y))
    apart = Ref(torch.cat([z, z]), torch.cat([y, y]), own=None)  # nobody's own picture is known: all are others
    assert not torch.allclose(loss(z, y, apart), loss(z, y))


def test_with_a_memory_the_means_are_those_of_batch_and_memory():
    loss = CrossBatchMemory(dim=4, loss=AdaptiveHierarchical(classes=CLASSES), size=8).double()
    z, y = batch(1)
    torch.testing.assert_close(loss(z, y), AdaptiveHierarchical(classes=CLASSES).double()(z, y))
    loss.after_step(1)
    later, y_later = batch(2, (0, 0, 1, 1))
    assert torch.isfinite(loss(later, y_later)).all()
    loss.after_step(2)
    met = [near(u, v, "cosine") for u in later[:2] for v, label in zip(z, y) if label == 5]
    assert float(loss.loss.means[0, 5]) == pytest.approx(0.9 * by_hand(z, y)[1][0, 5] + 0.1 * sum(met) / len(met))


def test_it_goes_on_from_its_state_and_learns_nothing_in_evaluation():
    first, late = (AdaptiveHierarchical(classes=CLASSES) for _ in range(2))
    z, y = batch(1)
    first(z.float(), y)
    first.after_step(1)
    late.load_state_dict(first.state_dict())
    z, y = batch(2)
    assert torch.equal(first(z.float(), y), late(z.float(), y))
    before = late.means.clone()
    late.pending = None
    late.eval()(z.float(), y)
    late.after_step(2)
    assert torch.equal(late.means, before)


def test_bad_arguments(unchecked):
    with pytest.raises(LikewiseError, match="alpha, beta and rho must be above 0, got alpha=2.0, beta=0"):
        AdaptiveHierarchical(classes=3, beta=0.0)
    with pytest.raises(
        LikewiseError, match="momentum < 1 and views >= 1 must hold, got width=0.2, momentum=1.0, views=1"
    ):
        AdaptiveHierarchical(classes=3, momentum=1.0)
    with pytest.raises(LikewiseError, match="space must be 'cosine' or 'hyperbolic', got 'flat'"):
        AdaptiveHierarchical(classes=3, space="flat")
    z, y = batch(1, (0, 0, 1))
    with pytest.raises(LikewiseError, match="with views=2 a batch must have every image 2 times, got 3 samples"):
        AdaptiveHierarchical(classes=3, views=2)(z, y)
