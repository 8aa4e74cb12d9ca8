"""Hessians against autograd's own, the recursion against its fixed point, and real steps of the head against moving it."""

import pytest
import torch
from likewise.contracts import Loss
from likewise.types import Embedded, LikewiseError
from torch.nn import functional as F

from likewise import losses
from likewise.core.settings.spec import build
from likewise.curate.audit import hessian as cur
from likewise.curate.audit import influence as inf

DIM, FEATURES, CLASSES, N = 4, 5, 3, 15
PAIR = torch.tensor([[0, 1], [2, 3], [0, 4]])
SIGN = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
UNSPLIT_NAME = [torch.arange(N)]


@pytest.fixture(scope="module")
def case():
    """A head, a loss, training and test samples."""
    draw = torch.Generator().manual_seed(0)
    weight, bias, proxies, f, other = (
        torch.randn(*shape, generator=draw, dtype=torch.float64)
        for shape in ((DIM, FEATURES), (DIM,), (CLASSES, DIM), (N, FEATURES), (6, FEATURES))
    )
    loss = losses.NormSoftmax(CLASSES, DIM, temperature=0.2).double()
    loss.proxies.data = proxies
    made = [embedded(weight, bias, x) for x in (f, other)]
    return weight, bias, loss, *made


def embedded(weight, bias, f):
    e = f @ weight.T + bias
    return Embedded(F.normalize(e, dim=1), torch.arange(len(f)) % CLASSES, torch.arange(len(f)), e, f)


def mean_loss(loss, train, bias):
    return lambda weight: loss(F.normalize(train.f @ weight.T + bias, dim=1), train.y).mean()


def true_hessian(loss, train, weight, bias):
    return torch.autograd.functional.hessian(mean_loss(loss, train, bias), weight).reshape(DIM * FEATURES, -1)


def test_the_softmax_factor_is_the_gauss_newton_matrix_sample_by_sample(case):
    _, _, loss, train, _ = case
    p = F.normalize(loss.proxies.detach(), dim=1)
    want = torch.zeros(DIM, DIM, dtype=torch.float64)
    for e in train.e:
        jacobian = torch.autograd.functional.jacobian(lambda x: 5 * p @ (x / x.norm()), e)
        share = (5 * p @ e / e.norm()).softmax(0)
        want += jacobian.T @ (share.diag() - torch.outer(share, share)) @ jacobian / N
    torch.testing.assert_close(cur.softmax_factor(train.e, loss.proxies, 5.0), want, rtol=0, atol=1e-12)


def test_kronecker_is_the_inverse_of_the_whole_matrix(case):
    _, _, loss, train, test = case
    g, aim = inf.embedding_gradients(loss, train), inf.repairs(test, PAIR, SIGN)
    s, a = cur.fisher_factor(g), sum(torch.outer(f, f) for f in train.f) / N
    torch.testing.assert_close(s, sum(torch.outer(one, one) for one in g) / N, rtol=0, atol=1e-13)
    damped = [m + 0.3 * m.trace() / len(m) * torch.eye(len(m), dtype=torch.float64) for m in (s, a)]
    solved = torch.linalg.solve(torch.kron(*damped), cur.gradients(aim).flatten(1).T).T.reshape(3, DIM, FEATURES)
    found = inf.influence(cur.kronecker(aim, train.f, s, damping=0.3), g, train.f)
    for q in range(3):
        for n in range(N):
            assert abs(float(found[q, n] - g[n] @ solved[q] @ train.f[n])) < 1e-10
    torch.testing.assert_close(cur.along(solved, g, train.f), found, rtol=0, atol=1e-10)


def test_products_with_the_hessian_are_autograds(case):
    weight, bias, loss, train, test = case
    v = cur.gradients(inf.repairs(test, PAIR, SIGN))
    want = (v.flatten(1) @ true_hessian(loss, train, weight, bias)).view_as(v)
    for batches in (None, UNSPLIT_NAME, torch.arange(N).split(4)):
        torch.testing.assert_close(cur.hessian_product(loss, train, v, batches), want, rtol=0, atol=1e-10)


def test_products_with_the_hessian_of_a_loss_on_pairs(case):
    weight, bias, _, train, test = case
    loss, v = losses.MultiSimilarity(miner=None), cur.gradients(inf.repairs(test, PAIR, SIGN))
    want = (v.flatten(1) @ true_hessian(loss, train, weight, bias)).view_as(v)
    torch.testing.assert_close(cur.hessian_product(loss, train, v, UNSPLIT_NAME), want, rtol=0, atol=1e-10)


def test_the_damped_solution_solves_and_lissa_runs_to_it(case, monkeypatch):
    weight, bias, loss, train, test = case
    v = cur.gradients(inf.repairs(test, PAIR, SIGN))
    hessian = true_hessian(loss, train, weight, bias)
    want = torch.linalg.solve(hessian + 5 * torch.eye(len(hessian), dtype=torch.float64), v.flatten(1).T).T.view_as(v)
    found = cur.damped_solution(loss, train, v, tolerance=1e-12, batches=UNSPLIT_NAME)
    torch.testing.assert_close(found, want, rtol=0, atol=1e-10)
    h = v.clone()
    for n in range(N):  # one pass by hand, with the Hessian of one sample after another
        one = Embedded(*(t[n : n + 1] for t in (train.z, train.y, train.row, train.e, train.f)))
        h = v + 0.9 * h - (h.flatten(1) @ true_hessian(loss, one, weight, bias)).view_as(h) / 50
    monkeypatch.setattr(cur, "LISSA_BLOCK_SIZE", 4)  # blocks of 4, 4, 4 and 3 samples
    for batches in (None, torch.arange(N).split(1)):
        found = cur.lissa(loss, train, v, damping=0.1, scale=50, batches=batches)
        torch.testing.assert_close(found, h / 50, rtol=0, atol=1e-12)
    far = v
    for _ in range(400):  # the whole set again and again
        far = v + 0.9 * far - cur.hessian_product(loss, train, far, UNSPLIT_NAME) / 50
    torch.testing.assert_close(far / 50, want, rtol=0, atol=1e-10)


def test_a_short_pass_of_lissa_is_noted():
    """0.99^229 = 0.1001 and 0.99^230 = 0.0991."""
    (note,) = cur.lissa_note(31)
    assert "one pass of 31 steps" in note and "about 73% of the way" in note
    assert len(cur.lissa_note(229)) == 1 and cur.lissa_note(230) == []


def test_lissa_one_by_one_is_the_same_for_a_loss_whose_batches_matter(case):
    """ProxyAnchor sums over the samples of a batch; one sample per step is a batch of one, as in the authors' code."""
    _, _, _, train, test = case
    torch.manual_seed(0)
    loss, v = losses.ProxyAnchor(CLASSES, DIM).double(), cur.gradients(inf.repairs(test, PAIR, SIGN))
    one_by_one = cur.lissa(loss, train, v, batches=torch.arange(N).split(1))
    torch.testing.assert_close(cur.lissa(loss, train, v), one_by_one, rtol=0, atol=1e-12)
    assert not torch.allclose(cur.lissa(loss, train, v, batches=torch.arange(N).split(5)), one_by_one, rtol=1e-3)


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
    v = cur.gradients(inf.repairs(test, PAIR, SIGN))
    h = cur.lissa(Flat(), train, v, damping=0.2, scale=10)
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
    setting = {"step": 0.05, "steps": 6, "limit": limit}
    for group, errors in ((None, [[0], [1], [2]]), (torch.tensor([1, 0, 1]), [[1], [0, 2]])):
        for heads, signs in ((1, [1]), (2, [1, -1])):
            found = cur.empirical(loss, train, test, PAIR, SIGN, group, heads=heads, **setting)
            for members, score in zip(errors, found, strict=True):
                each = [moved_by_hand(loss, train, test, weight, bias, members, s, 6, limit) for s in signs]
                torch.testing.assert_close(score, sum(each) / len(each), rtol=0, atol=1e-10)


def test_one_small_step_is_the_first_order(case):
    _, _, loss, train, test = case
    aim, step = inf.repairs(test, PAIR, SIGN), 1e-6
    first = inf.influence(aim, inf.embedding_gradients(loss, train), train.f) * inf.lengths(aim)[:, None]
    found = torch.stack(list(cur.empirical(loss, train, test, PAIR, SIGN, step=step, steps=1))) / step
    torch.testing.assert_close(found, first, rtol=1e-4, atol=1e-4 * float(first.abs().max()))


@pytest.mark.parametrize("loss", [losses.NPair(), losses.SNR(), losses.MultiSimilarity(miner=None)])
def test_for_a_loss_that_compares_samples_the_first_order_agrees_in_the_sum(case, loss):
    _, _, _, train, test = case
    aim, step = inf.repairs(test, PAIR, SIGN, space=loss.input), 1e-6
    first = inf.influence(aim, inf.embedding_gradients(loss, train, UNSPLIT_NAME), train.f) * inf.lengths(aim)[:, None]
    found = (
        torch.stack(list(cur.empirical(loss, train, test, PAIR, SIGN, step=step, steps=1, batches=UNSPLIT_NAME))) / step
    )
    torch.testing.assert_close(found.sum(1), first.sum(1), rtol=1e-3, atol=1e-4 * float(first.abs().max()))


def test_more_thetas_are_at_right_angles_and_as_far(case):
    _, _, _, _, test = case
    draw = torch.Generator().manual_seed(1)
    side, b = test.f[:2], torch.randn(2, DIM, generator=draw, dtype=torch.float64)
    moves = [(b, side), (-b + 0.01, side)]
    moves += cur._random_orthogonal_moves(moves, 3, seed=0)
    written = torch.stack([(b.T @ q).flatten() for b, q in moves])
    products = written @ written.T
    torch.testing.assert_close(products.diagonal()[2:], products[0, 0].expand(3), rtol=1e-12, atol=0)
    assert float((products - products.diagonal().diag())[2:].abs().max()) < 1e-12 * float(products[0, 0])


def test_five_thetas_average_what_each_of_them_says(case):
    weight, bias, loss, train, test = case
    setting = {"step": 0.05, "steps": 6}
    (two,) = cur.empirical(loss, train, test, PAIR[:1], SIGN[:1], heads=2, **setting)
    (five,) = cur.empirical(loss, train, test, PAIR[:1], SIGN[:1], heads=5, seed=3, **setting)
    at, side = test.e[PAIR[0]], test.f[PAIR[0]]
    ends = [cur._ascend(at, side, SIGN[:1], "unit", step, 6, 1.0) for step in (0.05, -0.05)]
    total = 2 * two
    for b, q in cur._random_orthogonal_moves([(b, side) for b in ends], 3, seed=3):
        w = weight + b.T @ q
        pair_distances = [F.normalize(side @ x.T + bias, dim=1).diff(dim=0).square().sum() for x in (w, weight)]
        each = [loss(F.normalize(train.f @ x.T + bias, dim=1), train.y).detach() for x in (w, weight)]
        total = total + (pair_distances[0] - pair_distances[1]) * (each[0] - each[1]) / (w - weight).norm()
    torch.testing.assert_close(five, total / 5, rtol=0, atol=1e-10)


def test_a_pair_at_distance_zero_blames_nobody(case):
    _, _, loss, train, test = case
    twin = Embedded(*(t[[0, 0]] for t in (test.z, test.y, test.row, test.e, test.f)))
    pair = torch.tensor([[0, 1]])
    (score,) = cur.empirical(loss, train, twin, pair, SIGN[:1], heads=3)
    assert torch.equal(score, torch.zeros(N, dtype=torch.float64))
    v = cur.gradients(inf.repairs(twin, pair, SIGN[:1]))
    assert not cur.damped_solution(loss, train, v).any()


def test_bad_input(case):
    _, _, loss, train, test = case
    aim = inf.repairs(test, PAIR, SIGN)
    v = cur.gradients(aim)
    with pytest.raises(LikewiseError, match="damping must be above 0, got 0"):
        cur.kronecker(aim, train.f, cur.fisher_factor(train.e), damping=0)
    with pytest.raises(LikewiseError, match="positive trace, got 0: no sample"):
        cur.kronecker(aim, train.f, torch.zeros(DIM, DIM, dtype=torch.float64))
    with pytest.raises(LikewiseError, match="lissa: damping must be between 0 and 1 .* got 1.5 and 500"):
        cur.lissa(loss, train, v, damping=1.5)
    with pytest.raises(LikewiseError, match="diverged with scale=1e-30"):
        cur.lissa(loss, train, v, scale=1e-30)
    with pytest.raises(LikewiseError, match="must be positive, got -"):
        cur.damped_solution(loss, train, v, damping=-100)
    with pytest.raises(LikewiseError, match="after 1 products the residual is .* of a gradient"):
        cur.damped_solution(loss, train, v, most=1, tolerance=1e-12)
    with pytest.raises(LikewiseError, match="got heads=0, steps=50"):
        next(cur.empirical(loss, train, test, PAIR, SIGN, heads=0))
    with pytest.raises(LikewiseError, match="empirical: .*got none for f"):
        bare = Embedded(test.z, test.y, test.row, test.e)
        next(cur.empirical(loss, train, bare, PAIR, SIGN))
