"""Class densities: by hand, against SciPy's multivariate normal, and against linear discriminants for many samples."""

import math

import numpy as np
import pytest
import torch
from made_label_sets import features_of, label_matrix, noisy_matrix
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch.nn import functional as F

from likewise.labels import class_density
from likewise.labels.class_density import (
    MIN_BETWEEN_VARIANCE,
    RELATED_SHRINK_SHARE,
    ClassDensity,
    density_odds,
    eigenvectors,
    fit_class_density,
    related_odds,
    sums_of,
)

CLASSES, DIM = 7, 4


@pytest.fixture
def data():
    """Samples of classes of 0, 1, 2, 5, 20, 30 and 40 samples."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(CLASSES), [0, 1, 2, 5, 20, 30, 40])
    x = rng.normal(size=(CLASSES, DIM))[y] * 2 + rng.normal(size=(len(y), DIM)) * np.linspace(0.5, 2, DIM) + 0.7
    return x, y


def fitted(x, q, shrink):
    x, q = torch.as_tensor(x), torch.as_tensor(q)
    return fit_class_density(q.sum(0), q.T @ x, x.T @ x, shrink)


def one_hot(y, classes=CLASSES):
    return F.one_hot(torch.as_tensor(y), classes).double()


def by_hand(x, q, shrink):
    """Mean, covariance within classes and covariance of the true centres, one sample and one class at a time."""
    n, size, mean = q.sum(), q.sum(0), x.mean(0)
    centre = np.stack([q[:, c] @ x / size[c] if size[c] > 0 else mean for c in range(len(size))])
    within = np.zeros((x.shape[1],) * 2)
    for i, c in np.ndindex(*q.shape):
        within += q[i, c] * np.outer(x[i] - centre[c], x[i] - centre[c])
    within /= n - np.minimum(size, 1).sum()
    within = (1 - shrink) * within + shrink * np.trace(within) / len(within) * np.eye(len(within))
    known = size > 1e-3
    weight = size / (size + 1)
    among = sum(w * np.outer(m - mean, m - mean) for w, m in zip(weight, centre)) / weight.sum()
    noise = (1 / (size + 1))[known].sum() / weight.sum()
    root = np.linalg.cholesky(within)
    white = np.linalg.solve(root, np.linalg.solve(root, among).T)
    value, vector = np.linalg.eigh(white)
    kept = value - noise > MIN_BETWEEN_VARIANCE
    return mean, centre - mean, root @ vector[:, kept], value[kept] - noise, within


def log_densities_by_hand(x, q, shrink):
    """Predictive log density of the two-covariance model under every class and under a class without samples.

    In the directions that are left out, all classes have the same density, which is left out too.
    """
    mean, centre, basis, between, within = by_hand(x, q, shrink)
    back = np.linalg.solve(within, basis).T  # rows: projections in which W is the unit matrix
    found = np.zeros((len(x), len(centre) + 1))
    for c, n in enumerate([*q.sum(0), 0.0]):
        b, m = np.diag(between), back @ (centre[c] if c < len(centre) else 0 * mean)
        gain = n * b @ np.linalg.inv(np.eye(len(b)) + n * b)  # of the sample mean of n samples with variance 1 / n
        normal = multivariate_normal(gain @ m, np.eye(len(b)) + b - gain @ b)
        found[:, c] = normal.logpdf((x - mean) @ back.T)
    return found


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("shrink", [0.05, 0.5, 1.0])
def test_scores_are_the_predictive_densities_of_the_two_covariance_model(data, soft, shrink):
    x, y = data
    q = one_hot(y)
    if soft:
        q = torch.softmax(3 * q + torch.randn(q.shape, generator=torch.Generator().manual_seed(0)), 1)
    model = fitted(x, q, shrink)
    found = torch.cat([model.scores(torch.tensor(x)), model.unseen_scores(torch.tensor(x))[:, None]], 1).numpy()
    wanted = log_densities_by_hand(x, q.numpy(), shrink)
    difference = found - wanted  # one constant per sample
    np.testing.assert_allclose(difference - difference[:, :1], 0, atol=1e-8)


def test_predictive_mean_and_variance_in_one_dimension_by_hand():
    """Classes of 4 samples with the means -3, 0 and 3."""
    x = np.array([-4.0, -4, -2, -2, -1, -1, 1, 1, 2, 2, 4, 4])[:, None]
    model = fitted(x, one_hot(np.repeat([0, 1, 2], 4), 3), 0.0)
    within = 12 / 9  # 12 squared deviations of 1; 12 samples minus 3 means
    between = (9 + 0 + 9) / 3 / within - 1 / 4  # mean square of the centres minus the noise of 4 samples
    assert float(model.mean) == 0 and float(model.projection.abs()) == pytest.approx(within**-0.5)
    side = model.projection[0].sign()
    shrunk = 4 * between / (1 + 4 * between)
    assert (side * model.centre[:, 0]).tolist() == pytest.approx(
        [-3 * within**-0.5 * shrunk, 0, 3 * within**-0.5 * shrunk]
    )
    variance = 1 + between / (1 + 4 * between)
    assert model.precision[:, 0].tolist() == pytest.approx([1 / variance] * 3)
    assert model.unseen_precision.tolist() == pytest.approx([1 / (1 + between)])


def test_a_class_without_samples_is_the_unseen_class(data):
    x, y = data
    model = fitted(x, one_hot(y), 0.5)
    assert (model.centre[0] == 0).all() and torch.equal(model.precision[0], model.unseen_precision)
    assert torch.allclose(model.scores(torch.tensor(x))[:, 0], model.unseen_scores(torch.tensor(x)), atol=1e-9)
    assert (model.precision.diff(dim=0) > 0).all()  # the more samples, the narrower


@pytest.mark.parity
def test_many_samples_give_the_scores_of_a_linear_discriminant():
    """With n samples per class, centres shrink and densities widen by about 1 / n: here below 0.01 of scores of about 10."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 20000)
    x = rng.normal(size=(5, 6))[y] * 2 + rng.normal(size=(len(y), 6))
    found = fitted(x, one_hot(y, 5), 0.3).scores(torch.tensor(x[::100])).numpy()
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3).fit(x, y)
    wanted = theirs.decision_function(x[::100]) - np.log(theirs.priors_)
    difference = (found - found[:, :1]) - (wanted - wanted[:, :1])
    assert np.abs(difference).max() < 0.01 < np.abs(wanted).max() / 100


def test_more_classes_than_features_and_fewer_give_the_same_densities(data):
    """Eigenvectors of the smaller of two matrices are computed; classes without samples and a rotation change no density."""
    x, y = data
    wide = np.concatenate([x, np.zeros((len(x), 8))], 1)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 12)))[0]
    few, many = fitted(wide, one_hot(y), 0.5), fitted(wide @ turn, one_hot(y, 20), 0.5)
    a, b = few.scores(torch.tensor(wide)), many.scores(torch.tensor(wide @ turn))
    a, b = a - a[:, :1], b[:, :CLASSES] - b[:, :1]
    assert torch.allclose(a, b, atol=1e-7)


def test_features_without_classes_have_no_directions_and_no_scores():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    model = fitted(np.zeros((60, 4)), one_hot(y, 3), 0.5)
    assert model.centre.shape == (3, 0) and (model.scores(torch.zeros(2, 4).double()) == 0).all()
    x = np.concatenate([rng.normal(size=(60, 3)) + y[:, None], np.full((60, 2), 3.0)], 1)  # features that never vary
    assert torch.isfinite(fitted(x, one_hot(y, 3), 0.5).scores(torch.tensor(x))).all()


@pytest.mark.parametrize("shrink", [0.02, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_identical_samples_have_a_density(seed, shrink):
    """Their covariance is zero, and differences of float32 sums leave a rounding error of either sign."""
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(size=(1, DIM)) * 10.0 ** rng.integers(-3, 4), dtype=torch.float32).expand(60, DIM)
    q = F.one_hot(torch.arange(60) % 3, 3).float()
    assert fit_class_density(q.sum(0), q.T @ x, x.T @ x, shrink).scores(x).isfinite().all()


def test_float32_scores_are_those_of_float64(data):
    x, y = data
    double = fitted(x, one_hot(y), 0.5).scores(torch.tensor(x))
    single = fitted(x.astype(np.float32), one_hot(y).float(), 0.5)
    found = single.scores(torch.tensor(x).float())
    assert isinstance(single, ClassDensity) and found.dtype == torch.float32
    a, b = double - double[:, :1], found - found[:, :1]
    assert torch.allclose(a.float(), b, atol=1e-3)


def test_eigenvectors_of_a_large_matrix_are_computed_where_it_is(monkeypatch):
    matrix = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double()
    matrix = matrix @ matrix.T
    for limit in (3, 512):
        monkeypatch.setattr(class_density, "MAX_CPU_MATRIX_ROWS", limit)
        value, vector = eigenvectors(matrix)
        assert torch.allclose(vector * value @ vector.T, matrix)


def test_no_samples_at_all_give_no_directions_and_no_scores():
    """If all samples belong to one group, each fold that is left out leaves none."""
    found = fit_class_density(torch.zeros(3), torch.zeros(3, 4), torch.zeros(4, 4), 0.1)
    x = torch.randn(5, 4)
    assert found.scores(x).tolist() == [[0.0] * 3] * 5 and found.unseen_scores(x).tolist() == [0.0] * 5


def label_sets(count=120):
    """Features, and noisy label sets."""
    has = noisy_matrix(label_matrix(count))
    return torch.tensor(features_of(label_matrix(count))).double(), torch.tensor(has).double()


@pytest.mark.parity
def test_odds_of_labels_are_those_of_discriminant_analysis():
    """Without shrinkage, the log odds of all labels are those of one analysis per label, up to its prior."""
    x, has = label_sets()
    found = density_odds(sums_of(x, has), 0.0).scores(x)
    for label in range(has.shape[1]):
        given = has[:, label].numpy() > 0
        theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x.numpy(), given)
        odds = theirs.decision_function(x.numpy()) - math.log(given.mean() / (1 - given.mean()))
        # scikit-learn divides by n as we do; both invert a 16 x 16 matrix in float64
        np.testing.assert_allclose(found[:, label], odds, rtol=1e-6, atol=1e-6)


def test_a_label_of_all_or_no_samples_has_no_odds():
    x, has = label_sets()
    has[:, 0], has[:, 1] = 0, 1
    found = density_odds(sums_of(x, has), 0.5).scores(x)
    assert bool((found[:, :2] == 0).all()) and bool(found.isfinite().all())


def test_relation_of_two_labels_by_hand():
    """With two labels, the odds of one are its covariance with the other over the determinant, times the other's deviation."""
    n, count, both = 10, torch.tensor([4.0, 5.0]).double(), torch.tensor([[4.0, 3.0], [3.0, 5.0]]).double()
    a, b = 0.4, 0.5
    cov = (1 - RELATED_SHRINK_SHARE) * (0.3 - a * b)
    det = (a * (1 - a)) * (b * (1 - b)) - cov**2
    odds = related_odds(n, count, both)
    found = odds.scores(torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double())
    assert found[0, 0].item() == pytest.approx(cov / det * (1 - b))
    assert found[1, 1].item() == pytest.approx(cov / det * (1 - a))
    assert found[1, 0].item() == pytest.approx(cov / det * (0 - b))
