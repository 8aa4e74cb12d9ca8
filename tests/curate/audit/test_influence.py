"""Influence through the head: gradients, Hessians and moved heads against autograd and by hand; a planted wrong label."""

import pytest
import torch
from likewise.contracts import Loss
from likewise.types import Embedded, LikewiseError
from torch.nn import functional as F

from likewise import losses
from likewise.core.settings.spec import build
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
        found = inf.repairs(test, PAIR, SIGN, group, space)
        assert len(found) == len(members)
        for one, some in zip(found, members):
            torch.testing.assert_close(one, repair_gradient(test, head, some, space), rtol=0, atol=1e-10)


def test_a_pair_at_distance_zero_moves_nothing():
    test, _ = made(3)
    twin = Embedded(*(t[[0, 0]] for t in (test.z, test.y, test.row, test.e, test.f)))
    pair = torch.tensor([[0, 1]])
    assert not inf.repairs(twin, pair, SIGN[:1]).any()
    (score,) = inf.empirical(softmax(), made()[0], twin, pair, SIGN[:1], heads=3)
    assert torch.equal(score, torch.zeros(24, dtype=torch.float64))


def first_order(loss, train, test, pair, sign, group=None, batches=None):
    """Products of the gradients of errors and samples: the influence with the identity in place of the Hessian."""
    g = inf.embedding_gradients(loss, train, batches)
    return inf.along(inf.repairs(test, pair, sign, group, loss.input), g, train.f)


def test_more_weight_on_a_harmful_sample_makes_the_error_worse():
    """One small step of training on each sample alone, and the error measured again."""
    (train, head), (test, _) = made(), made(9, seed=4)
    test = embedded(head, test.f, test.y)
    loss, small = softmax(), 1e-6
    found = first_order(loss, train, test, PAIR, SIGN)

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
    g, pair, sign = inf.embedding_gradients(loss, train), torch.tensor([[0, 1]]), SIGN[:1]
    found = [inf.along(inf.lissa(loss, train, inf.repairs(test, pair, sign)), g, train.f)[0]]
    found += [
        next(inf.empirical(loss, train, test, pair, sign, heads=n, ascent=inf.Ascent(step=0.01))) for n in (1, 2, 4)
    ]
    assert [int(score.argmax()) for score in found] == [0] * 4
    strong = inf.strongest(first_order(loss, train, test, pair, sign), 3)
    assert strong.harmful_row[0, 0] == 0 and strong.harmful[0, 0] > 5 * strong.harmful[0, 1]
    wanted = inf.strongest(first_order(loss, train, test, pair, -sign), 3)  # were the two one class, it would help most
    assert wanted.helpful_row[0, 0] == 0 and wanted.helpful[0, 0] == -strong.harmful[0, 0]


def test_the_strongest_are_those_of_the_full_sort():
    full = torch.randn(4, 31, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, (value, row) = inf.strongest(full, 6), full.sort(1)
    assert torch.equal(found.harmful_row, row.flip(1)[:, :6]) and torch.equal(found.helpful_row, row[:, :6])
    assert torch.equal(found.harmful, value.flip(1)[:, :6]) and torch.equal(found.helpful, value[:, :6])
    torch.testing.assert_close(found.spread, full.square().mean(1).sqrt(), rtol=1e-12, atol=0)


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
    with pytest.raises(LikewiseError, match="got none for e and f"):
        inf.embedding_gradients(loss, bare)
    holed = Embedded(train.z, train.y, train.row, train.e, train.f.clone())
    holed.f[5, 0] = torch.nan
    with pytest.raises(LikewiseError, match=r"f must be finite, got 1 .*row 5\)"):
        inf.embedding_gradients(loss, holed)


N = 15
WHOLE = [torch.arange(N)]


@pytest.fixture(scope="module")
def case():
    """A head, a loss, training and test samples."""
    draw = torch.Generator().manual_seed(0)
    weight, bias, proxies, f, other = (
        torch.randn(*shape, generator=draw, dtype=torch.float64)
        for shape in ((DIM, FEATURES), (DIM,), (CLASSES, DIM), (N, FEATURES), (7, FEATURES))
    )
    loss = losses.NormSoftmax(CLASSES, DIM, temperature=0.2).double()
    loss.proxies.data = proxies
    each = [through(weight, bias, x) for x in (f, other)]
    return weight, bias, loss, *each


def through(weight, bias, f):
    e = f @ weight.T + bias
    return Embedded(F.normalize(e, dim=1), torch.arange(len(f)) % CLASSES, torch.arange(len(f)), e, f)


def mean_loss(loss, train, bias):
    return lambda weight: loss(F.normalize(train.f @ weight.T + bias, dim=1), train.y).mean()


def true_hessian(loss, train, weight, bias):
    return torch.autograd.functional.hessian(mean_loss(loss, train, bias), weight).reshape(DIM * FEATURES, -1)


def test_lissa_is_one_pass_with_the_hessian_of_one_sample_after_another(case, monkeypatch):
    weight, bias, loss, train, test = case
    v = inf.repairs(test, PAIR, SIGN)
    h = v.clone()
    for n in range(N):
        one = Embedded(*(t[n : n + 1] for t in (train.z, train.y, train.row, train.e, train.f)))
        h = v + 0.9 * h - (h.flatten(1) @ true_hessian(loss, one, weight, bias)).view_as(h) / 50
    monkeypatch.setattr(inf, "LISSA_BLOCK_SIZE", 4)  # blocks of 4, 4, 4 and 3 samples
    for batches in (None, torch.arange(N).split(1)):
        found = inf.lissa(loss, train, v, damping=0.1, scale=50, batches=batches)
        torch.testing.assert_close(found, h / 50, rtol=0, atol=1e-12)


def test_lissa_over_batches_uses_the_hessian_of_a_batch(case):
    """For a loss that compares samples, and for one step over the whole set."""
    weight, bias, proxies, train, test = case
    v = inf.repairs(test, PAIR, SIGN)
    for loss in (proxies, losses.MultiSimilarity(miner=None)):
        product = (v.flatten(1) @ true_hessian(loss, train, weight, bias)).view_as(v)
        found = inf.lissa(loss, train, v, damping=0.1, scale=50, batches=WHOLE)
        torch.testing.assert_close(found, (1.9 * v - product / 50) / 50, rtol=0, atol=1e-12)


def test_a_short_pass_of_lissa_is_noted():
    """0.99^229 = 0.1001 and 0.99^230 = 0.0991."""
    (note,) = inf.lissa_note(31)
    assert "one pass of 31 steps" in note and "about 73% of the way" in note
    assert len(inf.lissa_note(229)) == 1 and inf.lissa_note(230) == []


def test_lissa_one_by_one_is_the_same_for_a_loss_whose_batches_matter(case):
    """ProxyAnchor sums over the samples of a batch; one sample per step is a batch of one, as in the authors' code."""
    _, _, _, train, test = case
    torch.manual_seed(0)
    loss, v = losses.ProxyAnchor(CLASSES, DIM).double(), inf.repairs(test, PAIR, SIGN)
    one_by_one = inf.lissa(loss, train, v, batches=torch.arange(N).split(1))
    torch.testing.assert_close(inf.lissa(loss, train, v), one_by_one, rtol=0, atol=1e-12)
    assert not torch.allclose(inf.lissa(loss, train, v, batches=torch.arange(N).split(5)), one_by_one, rtol=1e-3)


def test_losses_with_proxies_are_told_from_losses_that_compare_samples(case):
    train, alone = case[3], set()
    tree = {f"c{i}": (f"kind {i % 2}",) for i in range(CLASSES)}
    facts = {"classes": CLASSES, "dim": DIM, "per_pass": 2, "class_names": tuple(tree), "taxonomy": tree, "samples": N}
    for name in {*losses.__all__, "Hierarchical(loss=ProxyNCA(), coarse=2)"} - {"Hierarchical"}:
        loss = build(name, Loss, **facts).double()
        alone |= set() if inf.compares_samples(loss, train) else {name.split("(")[0]}
    assert alone >= {"ArcFace", "CosFace", "NormSoftmax", "ProxyAnchor", "ProxyNCA", "SoftTriple", "Hierarchical"}
    assert not alone & {"AdaptiveHierarchical", "Contrastive", "CrossBatchMemory", "Margin", "MultiSimilarity", "NPair"}
    assert not alone & {"Angular", "FastAP", "Histogram", "LiftedStructure", "SmoothAP", "SNR", "SupCon", "Triplet"}


def test_what_lissa_leaves_shrinks_with_every_batch(case):
    """Without curvature (a weightless loss) the recursion is a geometric sum."""
    _, _, _, train, test = case
    v = inf.repairs(test, PAIR, SIGN)
    h = inf.lissa(Flat(), train, v, damping=0.2, scale=10)
    torch.testing.assert_close(h, (1 - 0.8 ** (N + 1)) * v / (0.2 * 10), rtol=1e-10, atol=0)


class Flat(Loss):
    """A loss that is linear in the raw embeddings."""

    input = "raw"

    def forward(self, z, y, ref=None):
        return z.sum(1)


def moved_by_hand(loss, train, test, weight, bias, members, sign, steps, limit):
    """The head itself moved by gradient steps through autograd: EIF from W' as the paper writes it."""

    def worth(w):
        z = F.normalize(test.f @ w.T + bias, dim=1)
        return sum(SIGN[p] * (z[PAIR[p, 0]] - z[PAIR[p, 1]]).square().sum() for p in members) / len(members)

    w = weight.clone()
    for _ in range(steps):
        w.requires_grad_()
        now = worth(w)
        (slope,) = torch.autograd.grad(now, w)
        if abs(float((now - worth(weight)).detach())) >= limit:
            break
        w = (w + sign * 0.05 * slope).detach()
    each = [loss(F.normalize(train.f @ x.detach().T + bias, dim=1), train.y) for x in (w, weight)]
    return ((worth(w) - worth(weight)) * (each[0] - each[1]) / (w - weight).norm()).detach()


@pytest.mark.parametrize("limit", [1.0, 0.05])
def test_the_empirical_influence_moves_the_head_as_written(case, limit):
    weight, bias, loss, train, test = case
    ascent = inf.Ascent(step=0.05, steps=6, limit=limit)
    for group, errors in ((None, [[0], [1], [2], [3]]), (torch.tensor([1, 0, 1, 1]), [[1], [0, 2, 3]])):
        for heads, signs in ((1, [1]), (2, [1, -1])):
            found = inf.empirical(loss, train, test, PAIR, SIGN, group, heads=heads, ascent=ascent)
            for members, score in zip(errors, found, strict=True):
                each = [moved_by_hand(loss, train, test, weight, bias, members, s, 6, limit) for s in signs]
                torch.testing.assert_close(score, sum(each) / len(each), rtol=0, atol=1e-10)


@pytest.mark.parametrize("loss", [None, losses.NPair(), losses.SNR(), losses.MultiSimilarity(miner=None)])
def test_one_small_step_is_the_first_order(case, loss):
    """Sample by sample; in the sum over samples for a loss that compares them."""
    _, _, proxies, train, test = case
    compares, loss, step = loss is not None, loss or proxies, 1e-6
    length = inf.repairs(test, PAIR, SIGN, space=loss.input).flatten(1).norm(dim=1)
    first = first_order(loss, train, test, PAIR, SIGN, batches=WHOLE) * length[:, None]
    each = inf.empirical(loss, train, test, PAIR, SIGN, ascent=inf.Ascent(step, steps=1), batches=WHOLE)
    found = torch.stack(list(each)) / step
    if compares:
        first, found = first.sum(1), found.sum(1)
    torch.testing.assert_close(found, first, rtol=1e-3, atol=1e-4 * float(first.abs().max()))


def test_more_thetas_are_at_right_angles_and_as_far(case):
    _, _, _, _, test = case
    draw = torch.Generator().manual_seed(1)
    side, b = test.f[:2], torch.randn(2, DIM, generator=draw, dtype=torch.float64)
    moves = [(b, side), (-b + 0.01, side)]
    moves += inf._random_orthogonal_moves(moves, 3, seed=0)
    written = torch.stack([(b.T @ q).flatten() for b, q in moves])
    products = written @ written.T
    torch.testing.assert_close(products.diagonal()[2:], products[0, 0].expand(3), rtol=1e-12, atol=0)
    assert float((products - products.diagonal().diag())[2:].abs().max()) < 1e-12 * float(products[0, 0])


def test_five_thetas_average_what_each_of_them_says(case):
    weight, bias, loss, train, test = case
    ascent = inf.Ascent(step=0.05, steps=6)
    (two,) = inf.empirical(loss, train, test, PAIR[:1], SIGN[:1], heads=2, ascent=ascent)
    (five,) = inf.empirical(loss, train, test, PAIR[:1], SIGN[:1], heads=5, seed=3, ascent=ascent)
    at, side = test.e[PAIR[0]], test.f[PAIR[0]]
    ends = [inf._ascend(at, side, SIGN[:1], "unit", ascent, sign) for sign in (1, -1)]
    total = 2 * two
    for b, q in inf._random_orthogonal_moves([(b, side) for b in ends], 3, seed=3):
        w = weight + b.T @ q
        pair_distances = [F.normalize(side @ x.T + bias, dim=1).diff(dim=0).square().sum() for x in (w, weight)]
        each = [loss(F.normalize(train.f @ x.T + bias, dim=1), train.y).detach() for x in (w, weight)]
        total = total + (pair_distances[0] - pair_distances[1]) * (each[0] - each[1]) / (w - weight).norm()
    torch.testing.assert_close(five, total / 5, rtol=0, atol=1e-10)


def test_bad_settings(case):
    _, _, loss, train, test = case
    v = inf.repairs(test, PAIR, SIGN)
    with pytest.raises(LikewiseError, match="damping .* got 1.5"):
        inf.lissa(loss, train, v, damping=1.5)
    with pytest.raises(LikewiseError, match="diverged with scale=1e-30"):
        inf.lissa(loss, train, v, scale=1e-30)
    with pytest.raises(LikewiseError, match="empirical: heads .* got 0"):
        next(inf.empirical(loss, train, test, PAIR, SIGN, heads=0))
    with pytest.raises(LikewiseError, match="empirical: .*got none for f"):
        next(inf.empirical(loss, train, Embedded(test.z, test.y, test.row, test.e), PAIR, SIGN))
