"""Adaptive hierarchical similarity: margins and moving class means by hand, in both spaces, with views of one picture."""

import copy
import math

import pytest
import torch
from likewise.losses import AdaptiveHierarchical, CrossBatchMemory, MultiSimilarity, Triplet
from likewise.types import LikewiseError, Ref
from torch.nn import functional as F

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


def pairs_by_hand(z, y, known=(), views=1, space="cosine", gamma=0.5, width=0.2):
    """The images, negatives and views of every sample, each with its similarity minus its margin; the means after this batch."""
    y, size = y.tolist(), len(y)
    picture = [i % (size // views) for i in range(size)]
    sim = [[near(z[i], z[j], space) for j in range(size)] for i in range(size)]
    means = class_means(sim, y, picture, dict(known))
    mates = [[j for j in range(size) if y[j] == y[i] and picture[j] != picture[i]] for i in range(size)]
    others = [[j for j in range(size) if y[j] != y[i]] for i in range(size)]
    within = [means[y[i], y[i]] for i in range(size) if mates[i]]
    between = [means[y[i], y[j]] for i in range(size) for j in others[i]]
    found = []
    for i in range(size):
        least = min([sim[k][j] for k in range(size) if y[k] == y[i] for j in mates[k]], default=gamma)
        twins = [j for j in range(size) if j != i and picture[j] == picture[i]]
        found.append((
            {j: sim[i][j] - gamma - brought(means[y[i], y[i]], within, width) for j in mates[i]},
            {j: sim[i][j] - gamma + brought(means[y[i], y[j]], between, width) for j in others[i]},
            {j: sim[i][j] - least for j in twins},
        ))  # fmt: skip
    return found, means


def by_hand(z, y, known=(), views=1, space="cosine", alpha=2.0, beta=40.0, rho=2.0, gamma=0.5, width=0.2):
    """Numbers of every sample, and the means after this batch."""
    found, means = pairs_by_hand(z, y, known, views, space, gamma, width)
    each = []
    for images, negatives, twins in found:
        value = math.log(1 + sum(math.exp(-alpha * s) for s in images.values())) / alpha
        value += math.log(1 + sum(math.exp(beta * s) for s in negatives.values())) / beta
        each.append(value + math.log(1 + sum(math.exp(-rho * s) for s in twins.values())) / rho)
    return torch.tensor(each, dtype=torch.float64), means


def triplets_by_hand(z, y, triplets, **settings):
    found, _ = pairs_by_hand(z, y, **settings)
    images, views = [0.0] * len(y), [0.0] * len(y)
    for a, p, n in triplets:
        negative, twins = found[a][1][n], found[a][2].values()
        images[a] += max(0.0, negative - found[a][0][p])
        views[a] += sum(max(0.0, negative - s) for s in twins) / max(len(twins), 1)
    scale = len(y) / len(triplets)
    return torch.tensor([scale * (i + v) for i, v in zip(images, views)], dtype=torch.float64)


def lifted_by_hand(z, y, beta, **settings):
    found, _ = pairs_by_hand(z, y, **settings)
    each, count = [0.0] * len(y), 0
    for i in range(len(y)):
        for j, s in (found[i][0] | found[i][2]).items():
            both = [math.exp(beta * far) for k in (i, j) for far in found[k][1].values()]
            each[i] += max(0.0, math.log(sum(both)) / beta - s) ** 2 / 2
            count += 1
    return torch.tensor([len(y) * value / count for value in each], dtype=torch.float64)


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


FORMS = [("cosine", 0.5, 1), ("cosine", 0.5, 2), ("hyperbolic", -2.7, 2)]


@pytest.mark.parametrize(("space", "gamma", "views"), FORMS)
def test_triplets_by_hand(space, gamma, views, golden):
    z, y = batch(5, (0, 1, 1, 0) * 2)
    triplets = [(0, 3, 1), (1, 2, 4), (2, 1, 3), (2, 1, 0), (7, 4, 5)]  # not every sample, and one of them twice
    miner = type(golden.miner)(triplets)
    loss = AdaptiveHierarchical(classes=CLASSES, views=views, space=space, form="triplet", miner=miner).double()
    found = loss(z, y)
    expected = triplets_by_hand(z, y, triplets, views=views, space=space, gamma=gamma)
    torch.testing.assert_close(found, expected)
    assert found.sum() > 0


def test_the_base_of_the_margins_cancels_in_a_triplet(golden):
    settings = {"classes": 6, "form": "triplet", "miner": golden.miner}
    a, b = (AdaptiveHierarchical(gamma=g, **settings).double()(golden.z, golden.y) for g in (0.5, -0.2))
    torch.testing.assert_close(a, b)


def test_triplets_without_width_are_a_hinge_on_cosines(golden):
    """Which on squared distances is half a triplet loss without a margin."""
    found = AdaptiveHierarchical(classes=6, width=0.0, form="triplet", miner=golden.miner).double()(golden.z, golden.y)
    plain = Triplet(margin=0.0, squared=True, miner=golden.miner)(golden.z, golden.y)
    torch.testing.assert_close(found, plain / 2)


@pytest.mark.parametrize(("space", "gamma", "views"), FORMS)
@pytest.mark.parametrize("beta", [1.0, 40.0])
def test_lifted_by_hand(space, gamma, views, beta):
    z, y = batch(6, (0, 1, 1, 2) * 2)
    loss = AdaptiveHierarchical(classes=CLASSES, views=views, space=space, form="lifted", beta=beta).double()
    expected = lifted_by_hand(z, y, beta, views=views, space=space, gamma=gamma)
    torch.testing.assert_close(loss(z, y), expected)
    assert expected.sum() > 0


@pytest.mark.parametrize("form", ["triplet", "lifted"])
def test_other_forms_learn_the_class_means_too(form):
    loss = AdaptiveHierarchical(classes=CLASSES, form=form).double()
    z, y = batch(1)
    loss(z, y)
    loss.after_step(1)
    assert float(loss.means[0, 5]) == pytest.approx(by_hand(z, y)[1][0, 5])


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


def test_bad_arguments():
    z, y = batch(1, (0, 0, 1))
    with pytest.raises(LikewiseError, match="every image 2 times, got 3 samples"):
        AdaptiveHierarchical(classes=3, views=2)(z, y)
