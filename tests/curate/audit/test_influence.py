"""Influence through the head: shares and repairs against autograd, blocks against loops, signs by a planted wrong label."""

import pytest
import torch
from likewise.types import Embedded, LikewiseError
from torch.nn import functional as F

from likewise import losses
from likewise.core.settings.spec import build
from likewise.curate.audit import hessian as curvature
from likewise.curate.audit import influence as inf

DIM, FEATURES, CLASSES = 5, 7, 4


def made(n=24, seed=0, classes=CLASSES, dtype=torch.float64):
    """Random features through a random linear head, and the head."""
    draw = torch.Generator().manual_seed(seed)
    head = torch.nn.Linear(FEATURES, DIM, dtype=dtype)
    with torch.no_grad():
        head.weight.copy_(torch.randn(DIM, FEATURES, generator=draw, dtype=dtype))
        head.bias.copy_(torch.randn(DIM, generator=draw, dtype=dtype))
    return embedded(head, torch.randn(n, FEATURES, generator=draw, dtype=dtype), torch.arange(n) % classes), head


def embedded(head, f, y):
    e = head(f).detach()
    return Embedded(z=F.normalize(e, dim=1), y=y, row=torch.arange(len(y)), e=e, f=f)


def softmax(classes=CLASSES, seed=1):
    torch.manual_seed(seed)
    return losses.ProxyNCA(classes, DIM, positive_in_denominator=True).double()


def ways(loss, train, head, numbers):
    """The gradient by W of each of some numbers made from the loss per sample, by autograd through the head."""
    weight = head.weight.detach().requires_grad_()
    e = train.f @ weight.T + head.bias.detach()
    each = loss(F.normalize(e, dim=1) if loss.input == "unit" else e, train.y)
    return [torch.autograd.grad(one, weight, retain_graph=True)[0] for one in numbers(each)]


PAIR = torch.tensor([[0, 1], [2, 3], [0, 4], [5, 6]])
SIGN = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)


def repair_gradient(test, head, members, space="unit"):
    """The same for the mean signed squared distance of some pairs, one at a time."""
    weight = head.weight.detach().requires_grad_()
    e = test.f @ weight.T + head.bias.detach()
    z = F.normalize(e, dim=1) if space == "unit" else e
    total = sum(SIGN[p] * (z[PAIR[p, 0]] - z[PAIR[p, 1]]).square().sum() for p in members) / len(members)
    return torch.autograd.grad(total, weight)[0]


def test_shares_of_a_softmax_are_the_closed_form():
    train, _ = made()
    loss = softmax()
    p = F.normalize(loss.proxies.detach(), dim=1)
    for n, g in enumerate(inf.embedding_gradients(loss, train)):
        z, length = train.z[n], train.e[n].norm()
        q = 18 * p.T @ ((18 * p @ z).softmax(0) - F.one_hot(train.y[n], CLASSES))
        torch.testing.assert_close(g, (q - (q @ z) * z) / length, rtol=0, atol=1e-10)


def test_shares_of_a_loss_per_sample_are_its_gradients_in_any_batches():
    train, head = made()
    loss = softmax()
    want = ways(loss, train, head, list)
    for batches in (None, torch.arange(24).split(5)):
        with torch.no_grad():  # nobody need know that it takes a gradient
            g = inf.embedding_gradients(loss, train, batches)
        for n in range(24):
            torch.testing.assert_close(torch.outer(g[n], train.f[n]), want[n], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", losses.__all__)
def test_shares_of_every_loss_add_up_to_the_gradient_of_the_batch(name):
    train, head = made()
    torch.manual_seed(3)
    needs = {"CrossBatchMemory": "CrossBatchMemory(size=4)", "Hierarchical": "Hierarchical(loss=ProxyNCA(), coarse=2)"}
    text = needs.get(name, f"{name}()")
    facts = {"classes": CLASSES, "dim": DIM, "seed": 0, "steps": 10, "labels": train.y.numpy()}
    loss = build(text, **facts).double().eval()
    state = {k: v.clone() for k, v in loss.state_dict().items()}
    g = inf.embedding_gradients(loss, train, [torch.arange(24)])
    torch.manual_seed(0)  # as the miner of the first batch draws
    (want,) = ways(loss, train, head, lambda each: [each.sum()])
    torch.testing.assert_close(g.T @ train.f, want, rtol=1e-9, atol=1e-10)
    assert all(torch.equal(v, state[k]) for k, v in loss.state_dict().items())


@pytest.mark.parametrize("space", ["unit", "raw"])
def test_repairs_are_the_gradient_of_pairs_and_groups(space):
    test, head = made(9, seed=4)
    for group, members in ((None, [[0], [1], [2], [3]]), (torch.tensor([1, 0, 1, 1]), [[1], [0, 2, 3]])):
        aim = inf.repairs(test, PAIR, SIGN, group, space)
        assert aim.errors == len(members)
        for q, some in enumerate(members):
            mine = aim.error == q
            want = repair_gradient(test, head, some, space)
            torch.testing.assert_close(aim.a[mine].T @ aim.f[mine], want, rtol=0, atol=1e-10)
            torch.testing.assert_close(inf.lengths(aim)[q], want.norm(), rtol=1e-12, atol=0)


def test_a_pair_at_distance_zero_moves_nothing():
    test, _ = made(3)
    twin = Embedded(*(t[[0, 0]] for t in (test.z, test.y, test.row, test.e, test.f)))
    aim = inf.repairs(twin, torch.tensor([[0, 1]]), SIGN[:1])
    assert torch.equal(aim.a, torch.zeros(2, DIM, dtype=torch.float64))


def test_influence_is_the_product_of_gradients_one_by_one():
    (train, head), (test, _) = made(), made(9, seed=4)
    test = embedded(head, test.f, test.y)
    loss = softmax()
    g = inf.embedding_gradients(loss, train)
    of_sample = ways(loss, train, head, list)
    found = inf.influence(inf.repairs(test, PAIR, SIGN, torch.tensor([1, 0, 1, 1])), g, train.f)
    for q, members in enumerate([[1], [0, 2, 3]]):
        of_error = repair_gradient(test, head, members)
        for n in range(24):
            assert abs(float(found[q, n] - (of_error * of_sample[n]).sum())) < 1e-10


def test_more_weight_on_a_harmful_sample_makes_the_error_worse():
    """One small step of training on each sample alone, and the error measured again."""
    (train, head), (test, _) = made(), made(9, seed=4)
    test = embedded(head, test.f, test.y)
    loss, small = softmax(), 1e-6
    found = inf.influence(inf.repairs(test, PAIR, SIGN), inf.embedding_gradients(loss, train), train.f)

    def worth(weight, p):
        z = F.normalize(test.f @ weight.T + head.bias.detach(), dim=1)
        return float(SIGN[p] * (z[PAIR[p, 0]] - z[PAIR[p, 1]]).square().sum())

    for n, gradient in enumerate(ways(loss, train, head, list)[:6]):
        for p in range(4):
            change = worth(head.weight.detach() - small * gradient, p) - worth(head.weight.detach(), p)
            assert change / small == pytest.approx(-float(found[p, n]), rel=1e-3, abs=1e-4)


def planted():
    """Four clear classes, a head trained on them with one wrong label: sample 0 looks like class 0 and is called 1."""
    draw = torch.Generator().manual_seed(0)
    centre = 2 * torch.eye(CLASSES, FEATURES, dtype=torch.float64)
    looks = torch.arange(40) % CLASSES
    f = centre[looks] + 0.2 * torch.randn(40, FEATURES, generator=draw, dtype=torch.float64)
    y = looks.clone()
    y[0] = 1
    torch.manual_seed(0)
    head, loss = torch.nn.Linear(FEATURES, DIM, dtype=torch.float64), softmax()
    steps = torch.optim.Adam([*head.parameters(), *loss.parameters()], lr=0.02)
    for _ in range(60):
        steps.zero_grad()
        loss(F.normalize(head(f), dim=1), y).mean().backward()
        steps.step()
    strange = torch.stack([f[0], centre[1]])  # a test sample like the wrongly called one, confused with class 1
    return loss, embedded(head, f, y), embedded(head, strange, torch.tensor([0, 1]))


def test_a_wrong_label_is_the_most_harmful_for_the_error_it_causes():
    loss, train, test = planted()
    g, pair = inf.embedding_gradients(loss, train), torch.tensor([[0, 1]])
    confused = inf.causes(inf.repairs(test, pair, SIGN[:1]), g, train.f, k=3)
    assert confused.harmful_row[0, 0] == 0 and confused.harmful[0, 0] > 5 * confused.harmful[0, 1]
    wanted = inf.causes(
        inf.repairs(test, pair, -SIGN[:1]), g, train.f, k=3
    )  # were the two one class, it would help most
    assert wanted.helpful_row[0, 0] == 0 and wanted.helpful[0, 0] == -confused.harmful[0, 0]


def test_so_it_is_with_a_hessian_and_by_a_real_step():
    loss, train, test = planted()
    g, pair, sign = inf.embedding_gradients(loss, train), torch.tensor([[0, 1]]), SIGN[:1]
    aim = inf.repairs(test, pair, sign)
    v = curvature.gradients(aim)
    factors = curvature.softmax_factor(train.e, loss.proxies, 18.0), curvature.fisher_factor(g)
    found = [inf.influence(curvature.kronecker(aim, train.f, s), g, train.f)[0] for s in factors]
    for solve in (curvature.lissa, curvature.damped_solution):
        found.append(curvature.along(solve(loss, train, v), g, train.f)[0])
    found += [next(curvature.empirical(loss, train, test, pair, sign, heads=n, step=0.01)) for n in (1, 2, 4)]
    assert [int(score.argmax()) for score in found] == [0] * 7


@pytest.mark.parametrize("budget", [1, 300, 2000, 2**26])
def test_the_strongest_are_those_of_the_full_sort_for_every_budget(budget):
    (train, head), (test, _) = made(31), made(9, seed=4)
    g = inf.embedding_gradients(softmax(), train)
    aim = inf.repairs(embedded(head, test.f, test.y), PAIR, SIGN, torch.tensor([2, 0, 1, 1]))
    full = inf.influence(aim, g, train.f)
    torch.testing.assert_close(inf.influence(aim, g, train.f, budget), full, rtol=1e-12, atol=1e-13)
    found = inf.causes(aim, g, train.f, k=6, budget=budget)
    value, row = full.sort(1)
    assert torch.equal(found.harmful_row, row.flip(1)[:, :6]) and torch.equal(found.helpful_row, row[:, :6])
    torch.testing.assert_close(found.harmful, value.flip(1)[:, :6], rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found.spread, full.square().mean(1).sqrt(), rtol=1e-12, atol=0)
    again = inf.strongest(full, 6)
    assert torch.equal(again.harmful_row, found.harmful_row) and torch.equal(again.helpful_row, found.helpful_row)


def test_twins_among_the_training_samples_count_alike():
    (train, _), (test, _) = made(), made(9, seed=4)
    twice = [*range(24), 3]
    train = Embedded(*(t[twice] for t in (train.z, train.y, train.row, train.e, train.f)))
    found = inf.influence(inf.repairs(test, PAIR, SIGN), inf.embedding_gradients(softmax(), train), train.f)
    torch.testing.assert_close(found[:, 3], found[:, 24], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("sizes", [[5, 9, 2, 1, 30], [3] * 40, [1, 1], [200, 2]])
def test_balanced_batches_hold_everybody_once_and_nobody_alone(sizes):
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    batches = inf.balanced_batches(y, batch=12, per_class=2, seed=1)
    assert torch.cat(batches).sort().values.tolist() == list(range(len(y)))
    for rows in batches:
        assert len(rows) >= min(12, len(y)) - 3
        for label, count in zip(*(t.tolist() for t in y[rows].unique(return_counts=True))):
            assert count >= min(2, sizes[label])
    assert all(map(torch.equal, batches, inf.balanced_batches(y, batch=12, per_class=2, seed=1)))


def test_bad_input():
    (train, _), loss = made(), softmax()
    bare = Embedded(z=train.z, y=train.y, row=train.row)
    with pytest.raises(LikewiseError, match="embedding_gradients: .*got none for e and f"):
        inf.embedding_gradients(loss, bare)
    holed = Embedded(train.z, train.y, train.row, train.e, train.f.clone())
    holed.f[5, 0] = torch.nan
    with pytest.raises(LikewiseError, match=r"f must be finite, got 1 rows that are not \(first: row 5\)"):
        inf.embedding_gradients(loss, holed)
    with pytest.raises(LikewiseError, match="each of the 24 training samples once, got 20 rows"):
        inf.embedding_gradients(loss, train, [torch.arange(20)])
    with pytest.raises(LikewiseError, match="rows of test samples, 0 to 23, got 0 to 24"):
        inf.repairs(train, torch.tensor([[0, 24]]), SIGN[:1])
    with pytest.raises(LikewiseError, match="got no pairs"):
        inf.repairs(train, PAIR[:0], SIGN[:0])
    with pytest.raises(LikewiseError, match="sign must be 1 .* got 0.5"):
        inf.repairs(train, PAIR, SIGN / 2)
    with pytest.raises(LikewiseError, match=r"without a gap, got \[0, 2\]"):
        inf.repairs(train, PAIR, SIGN, torch.tensor([0, 2, 2, 0]))
    aim = inf.repairs(train, PAIR, SIGN)
    with pytest.raises(LikewiseError, match=r"\(5 and 7\), got shapes \(24, 7\) and \(24, 7\)"):
        inf.influence(aim, train.f, train.f)
    with pytest.raises(LikewiseError, match=r"k must be 1 to .*\(24\), got 25"):
        inf.causes(aim, train.e, train.f, k=25)
    with pytest.raises(LikewiseError, match="2 or more, got 1 and 4"):
        inf.balanced_batches(train.y, batch=1)
