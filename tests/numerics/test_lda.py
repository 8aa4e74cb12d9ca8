"""Linear discriminants without a sample's own fold: NumPy one fold at a time, scikit-learn, and any block size."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch.nn import functional as F

from likewise.numerics import lda as discriminant
from likewise.numerics.lda import Discriminant

N, DIM, CLASSES, FOLDS = 120, 6, 5, 3


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(N) % CLASSES)
    x = rng.normal(size=(CLASSES, DIM))[y] * 1.5 + rng.normal(size=(N, DIM)) * np.linspace(0.5, 2, DIM) + 0.7
    return x, y, rng.permutation(np.arange(N) % FOLDS)


def fitted(x, fold, q, shrink, folds=FOLDS):
    each = Discriminant(torch.tensor(x), torch.tensor(fold), folds, q.shape[1])
    for rows in each.blocks():
        each.add(rows, torch.as_tensor(q)[rows])
    each.fit(shrink)
    return each


def one_hot(y, classes=CLASSES):
    return F.one_hot(torch.tensor(y), classes).double()


def scores_by_hand(x, q, fold, shrink):
    """Soft labels; every fold by the others, one class at a time."""
    found = np.zeros((len(x), q.shape[1]))
    for k in range(fold.max() + 1):
        out = fold != k
        n, mean = q[out].sum(), x[out].mean(0)
        centre = [sum(q[i, c] * x[i] for i in np.flatnonzero(out)) / q[out, c].sum() for c in range(q.shape[1])]
        within = np.zeros((x.shape[1], x.shape[1]))
        for i in np.flatnonzero(out):
            for c in range(q.shape[1]):
                within += q[i, c] * np.outer(x[i] - centre[c], x[i] - centre[c]) / n
        within = (1 - shrink) * within + shrink * np.trace(within) / len(within) * np.eye(len(within))
        inverse = np.linalg.inv(within)
        for i in np.flatnonzero(~out):
            for c in range(q.shape[1]):
                d = centre[c] - mean
                found[i, c] = (x[i] - mean) @ inverse @ d - d @ inverse @ d / 2
    return found


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("shrink", [0.05, 0.4, 1.0])
def test_scores_by_hand(data, soft, shrink):
    x, y, fold = data
    q = one_hot(y)
    if soft:
        q = torch.softmax(3 * q + torch.randn(q.shape, generator=torch.Generator().manual_seed(0)), 1)
    found = fitted(x, fold, q, shrink).scores(torch.arange(N)).numpy()
    np.testing.assert_allclose(found, scores_by_hand(x, q.numpy(), fold, shrink), rtol=1e-8, atol=1e-8)


@pytest.mark.parity
def test_scores_are_those_of_scikit_learn_without_the_fold(data):
    """Up to the classes' shares, which count for nothing here, and to a number of the sample's own."""
    x, y, fold = data
    found = fitted(x, fold, one_hot(y), 0.3).scores(torch.arange(N)).numpy()
    for k in range(FOLDS):
        out = fold != k
        theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3).fit(x[out], y[out])
        wanted = theirs.decision_function(x[~out]) - np.log(theirs.priors_)
        mine = found[~out]
        difference = (mine - mine[:, :1]) - (wanted - wanted[:, :1])
        assert np.abs(difference).max() < 1e-8


def test_no_label_speaks_for_its_own_fold(data):
    x, y, fold = data
    mine = np.flatnonzero(fold == 1)
    before = fitted(x, fold, one_hot(y), 0.4).scores(torch.tensor(mine))
    y = y.copy()
    y[mine] = (y[mine] + 1) % CLASSES
    after = fitted(x, fold, one_hot(y), 0.4).scores(torch.tensor(mine))
    assert torch.allclose(before, after, rtol=1e-10)
    others = torch.tensor(np.flatnonzero(fold != 1))
    assert not torch.allclose(
        fitted(*data[::2], one_hot(data[1]), 0.4).scores(others), fitted(x, fold, one_hot(y), 0.4).scores(others)
    )


def test_the_block_size_changes_nothing(data, monkeypatch):
    x, y, fold = data
    whole = fitted(x, fold, one_hot(y), 0.4)
    assert len(list(whole.blocks())) == 1
    monkeypatch.setattr(discriminant, "SCORE_BLOCK_SIZE", 7 * CLASSES)
    parts = fitted(x, fold, one_hot(y), 0.4)
    assert [len(rows) for rows in parts.blocks()] == [7] * 17 + [1]
    together = torch.cat([parts.scores(rows) for rows in parts.blocks()])
    assert torch.allclose(together, whole.scores(torch.arange(N)), rtol=1e-10)


def test_a_class_without_samples_outside_a_fold_stands_at_the_mean(data):
    """No division by nothing; its score is 0 for everyone in the fold that holds all of it."""
    x, y, fold = data
    y = np.where((y == 2) & (fold != 0), 3, y)  # all that is left of class 2 lies in fold 0
    scores = fitted(x, fold, one_hot(y), 0.4).scores(torch.arange(N))
    assert torch.isfinite(scores).all() and (scores[fold == 0, 2] == 0).all() and (scores[fold != 0, 2] != 0).any()


def test_features_that_never_vary_do_no_harm(data):
    x, y, fold = data
    x = np.concatenate([x, np.full((N, 2), 3.0)], 1)
    assert torch.isfinite(fitted(x, fold, one_hot(y), 0.4).scores(torch.arange(N))).all()
    assert torch.isfinite(fitted(np.zeros((N, 4)), fold, one_hot(y), 0.4).scores(torch.arange(N))).all()


def test_a_second_fit_goes_by_what_was_added_since_the_first(data):
    x, y, fold = data
    each = fitted(x, fold, one_hot((y + 1) % CLASSES), 0.4)
    for rows in each.blocks():
        each.add(rows, one_hot(y)[rows])
    each.fit(0.4)
    assert torch.equal(each.scores(torch.arange(N)), fitted(x, fold, one_hot(y), 0.4).scores(torch.arange(N)))


def test_scores_that_are_not_kept_are_worked_out_again(data, monkeypatch):
    x, y, fold = data
    kept = fitted(x, fold, one_hot(y), 0.4)
    monkeypatch.setattr(discriminant, "MAX_STORED_SCORES", N * CLASSES - 1)
    again = fitted(x, fold, one_hot(y), 0.4)
    assert kept.stored is not None and again.stored is None
    some = torch.tensor([5, 0, 77])
    assert torch.allclose(again.scores(some), kept.scores(some), rtol=1e-10)
