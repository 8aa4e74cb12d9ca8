"""Single label scores by hand, one sample at a time (low = suspect), and labels that the same votes suggest."""

import math

import numpy as np
import pytest
import torch
from likewise.errors import LikewiseError
from torch.nn import functional as F

from likewise.curate.audit import single_scores as module
from likewise.curate.audit.single_scores import (
    loss_over_time,
    median_class_size,
    neighbour_vote,
    rank_by_loss,
    self_gradient,
    suggest,
    votes,
)


def some(sizes=(1, 2, 5, 9, 6, 6), dim=6, seed=0, far=1.0):
    """Classes of these sizes in mixed order, with labels that have gaps; vectors are not of unit length."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    z = far * torch.randn(len(sizes), dim, generator=g)[y] + torch.randn(len(y), dim, generator=g)
    order = torch.randperm(len(y), generator=g)
    return z[order], 3 * y[order] + 2


def cos(a, b):
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def with_median(score, y):
    """By hand: samples alone in their class get the (lower) median of the others."""
    alone = [int((y == label).sum()) == 1 for label in y]
    rest = sorted(s for s, a in zip(score, alone) if not a)
    return [rest[(len(rest) - 1) // 2] if a else s for s, a in zip(score, alone)]


def vote_by_hand(z, y, k, temperature):
    score = []
    for i in range(len(z)):
        voters = min(k, int((y == y[i]).sum()) - 1)
        far = sorted((math.sqrt(max(0, 2 - 2 * cos(z[i], z[j]))), j) for j in range(len(z)) if j != i)[:voters]
        weight = [math.exp(-d / temperature) for d, _ in far]
        own = [w for w, (_, j) in zip(weight, far) if y[j] == y[i]]
        score.append(sum(own) / sum(weight) if weight else math.nan)
    return with_median(score, y)


@pytest.mark.parametrize("chunk", [2**23, 20])
@pytest.mark.parametrize(("k", "temperature"), [(None, 0.05), (3, 1.0), (100, 0.3)])
def test_votes_by_hand(k, temperature, chunk, monkeypatch):
    monkeypatch.setattr(module, "SCORE_BLOCK_SIZE", chunk)
    z, y = some()
    by_hand = vote_by_hand(z.double(), y, k or 5, temperature)
    np.testing.assert_allclose(neighbour_vote(z, y, k, temperature), by_hand, atol=1e-6)


@pytest.mark.parity
def test_votes_are_scikit_learns():
    from sklearn.neighbors import KNeighborsClassifier

    z, y = some((8, 8, 8, 8), seed=3)
    z = F.normalize(z, dim=1).double()
    model = KNeighborsClassifier(7, weights=lambda d: np.exp(-d / 0.2)).fit(z.numpy(), y.numpy())
    far, row = model.kneighbors()  # without the sample itself
    weight = np.exp(-far / 0.2)
    share = (weight * (y.numpy()[row] == y.numpy()[:, None])).sum(1) / weight.sum(1)
    np.testing.assert_allclose(neighbour_vote(z, y, 7, 0.2), share, atol=1e-6)


def test_the_usual_number_of_voters_is_the_median_class_size_up_to_a_limit(monkeypatch):
    z, y = some()
    assert median_class_size(y) == 5
    assert next(votes(z, y, torch.arange(4)))[1].shape == (4, 5)
    monkeypatch.setattr(module, "MAX_VOTING_NEIGHBOURS", 3)
    assert next(votes(z, y, torch.arange(4)))[1].shape == (4, 3)


@pytest.mark.parametrize("sizes", [(2,) * 12, (5,) * 12, (30, 30)])
def test_a_swapped_label_is_the_most_suspect_whatever_the_class_size(sizes):
    z, y = some(sizes, dim=32, far=5.0)
    true = y.clone()
    y[0] = y[y != y[0]][0]
    found = neighbour_vote(z, y)
    assert ((found >= 0) & (found <= 1)).all()
    touched = (y == y[0]) | (y == true[0])  # in a class of two, the other one is left with a stranger, or alone
    assert found[0] == found.min() and (found[~touched] > found[0]).all()


def test_samples_that_are_all_alone_are_undecided():
    z, y = torch.randn(4, 3), torch.arange(4)
    assert neighbour_vote(z, y).tolist() == [0.5] * 4


def test_loss_ranks_by_hand():
    loss = torch.tensor([0.3, 9.0, 0.3, 0.1, torch.inf, 2.0])
    n = len(loss)
    by_hand = [
        sum(1.0 if b > a else 0.5 if b == a else 0.0 for j, b in enumerate(loss) if j != i) / (n - 1)
        for i, a in enumerate(loss)
    ]
    np.testing.assert_allclose(rank_by_loss(loss), by_hand)
    assert rank_by_loss(torch.tensor([3.0])).tolist() == [0.5]


@pytest.mark.parity
def test_loss_ranks_are_scipys():
    from scipy.stats import rankdata

    loss = torch.randint(0, 20, (50,), generator=torch.Generator().manual_seed(0)).float()
    # In float64: newer versions of scipy rank float32 numbers in float32.
    np.testing.assert_allclose(rank_by_loss(loss), 1 - (rankdata(loss.double().numpy()) - 1) / 49)


def test_loss_over_time_is_the_mean_of_the_looks_that_saw_a_sample():
    nan = torch.nan
    history = torch.tensor([[1.0, 2.0, 3.0, nan, nan], [5.0, nan, 4.0, 6.0, nan], [nan] * 5])
    seen = [(1.0 + 0.5) / 2, 0.5, (0.0 + 1.0) / 2, 0.0]
    np.testing.assert_allclose(loss_over_time(history), [*seen, sorted(seen)[1]])


def test_the_self_gradient_is_autograds():
    g = torch.Generator().manual_seed(0)
    f, w, proxy = (torch.randn(*s, generator=g, dtype=torch.float64) for s in ((12, 5), (4, 5), (3, 4)))
    y = torch.arange(12) % 3
    e = (f @ w.T).requires_grad_()
    F.cross_entropy(F.normalize(e, dim=1) @ proxy.T, y, reduction="sum").backward()
    norm = []
    for i in range(12):
        head = w.clone().requires_grad_()
        F.cross_entropy(F.normalize(f[i : i + 1] @ head.T, dim=1) @ proxy.T, y[i : i + 1]).backward()
        norm.append(float(head.grad.norm()))
    np.testing.assert_allclose(self_gradient(e.grad, f), rank_by_loss(torch.tensor(norm)))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: neighbour_vote(torch.randn(4, 2), torch.zeros(3, dtype=torch.int64)), "one integer per row"),
        (lambda: neighbour_vote(torch.tensor([[1.0], [torch.nan]]), torch.arange(2)), "first: row 1"),
        (lambda: neighbour_vote(torch.tensor([[1.0], [1e20]]), torch.arange(2)), r"below 1e\+15.*first: row 1"),
        (lambda: rank_by_loss(torch.tensor([1.0, torch.nan])), "first: row 1"),
    ],
)
def test_bad_input_is_named(work, message, unchecked):
    with pytest.raises(LikewiseError, match=message):
        work()


def suggestion_by_hand(z, y, i, k, temperature, foreign):
    """(label, confidence, margin) of sample i."""
    z = F.normalize(z.double(), dim=1)
    others = [j for j in range(len(z)) if j != i and not (foreign and y[j] == y[i])]
    k = k if foreign else min(k, int((y == y[i]).sum()) - 1)
    near = sorted((float((z[i] - z[j]).norm()), j) for j in others)[:k]
    share = {}
    for d, j in near:
        share[int(y[j])] = share.get(int(y[j]), 0) + math.exp(-d / temperature)
    if not share:
        return int(y[i]), 0.0, 0.0
    ranked = sorted(((w / sum(share.values()), label) for label, w in share.items()), reverse=True)
    return ranked[0][1], ranked[0][0], ranked[0][0] - (ranked[1][0] if len(ranked) > 1 else 0.0)


@pytest.mark.parametrize("chunk", [2**23, 12])
@pytest.mark.parametrize("foreign", [True, False])
@pytest.mark.parametrize(("k", "temperature"), [(None, 0.05), (4, 1.0), (100, 0.5)])
def test_suggestions_by_hand(k, temperature, foreign, chunk, monkeypatch):
    monkeypatch.setattr(module, "SCORE_BLOCK_SIZE", chunk)
    z, y = some()
    found = suggest(z, y, foreign=foreign, k=k, temperature=temperature)
    expected = [suggestion_by_hand(z, y, i, k or 5, temperature, foreign) for i in range(len(z))]
    assert found.row.tolist() == list(range(len(z)))
    assert found.y.tolist() == [label for label, _, _ in expected]
    np.testing.assert_allclose(found.confidence, [c for _, c, _ in expected], atol=1e-6)
    np.testing.assert_allclose(found.margin, [m for _, _, m in expected], atol=1e-6)
    assert not foreign or (found.y != y).all()


def test_only_the_rows_asked_for():
    z, y = some()
    rows = torch.tensor([7, 0, 20])
    some_of, all_of = suggest(z, y, rows), suggest(z, y)
    assert some_of.row.tolist() == [7, 0, 20] and some_of.y.tolist() == all_of.y[rows].tolist()
    assert [len(t) for t in suggest(z, y, rows[:0])] == [0] * 4


@pytest.mark.parametrize("size", [2, 5, 20])
def test_swapped_labels_are_found_again(size):
    z, true = some((size,) * 12, dim=32, far=5.0)
    y = true.clone()
    y[:3] = true[3:6].where(true[3:6] != true[:3], true[true != true[0]][0])
    wrong = (y != true).nonzero()[:, 0]
    found = suggest(z, y, wrong)
    assert found.y.tolist() == true[wrong].tolist()


def test_a_tie_goes_to_the_nearest():
    z = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.3], [1.0, -0.3]]), dim=1)
    found = suggest(z, torch.tensor([0, 8, 4]), torch.tensor([0]))
    assert found.y.tolist() == [8] and found.confidence.tolist() == [1.0]  # classes of one: one voter
    found = suggest(z, torch.tensor([0, 8, 4]), torch.tensor([0]), k=2)
    assert found.y.tolist() == [8] and found.confidence.tolist() == [0.5] and found.margin.tolist() == [0.0]
