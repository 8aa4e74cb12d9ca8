import numpy as np
import pytest
from likewise.samplers import FrechetMatching

from likewise.learn.samplers.frechet_matching import frechet


def tries_of(rows, count, size, rng):
    return np.stack([rng.choice(rows, size, replace=False) for _ in range(count)])


@pytest.mark.parametrize(
    ("rows", "dim", "size"),
    [(300, 6, 40), (60, 12, 8), (10, 32, 6), (50, 1, 5)],  # regular, S singular, both singular, one dimension
)
def test_against_the_root_of_the_matrix_product(rows, dim, size):
    linalg = pytest.importorskip("scipy.linalg")
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, dim)) @ rng.normal(size=(dim, dim)) + 1
    tries = tries_of(rows, 3, size, rng)
    aim = np.atleast_2d(np.cov(z.T))
    for t, found in zip(tries, frechet(z, tries)):
        cov = np.atleast_2d(np.cov(z[t].T))
        half = linalg.sqrtm(aim).real
        # scipy's root of the product itself is inexact where that is singular; this has the same trace
        root = linalg.sqrtm(half @ cov @ half).real if dim > size else linalg.sqrtm(cov @ aim).real
        expected = ((z[t].mean(0) - z.mean(0)) ** 2).sum() + np.trace(cov + aim - 2 * root)
        assert found == pytest.approx(expected, rel=1e-4)


def test_by_hand_where_covariances_are_diagonal():
    """Then it is the distance of the means and of the standard deviations, dimension by dimension."""
    z = np.array([[0, 0], [2, 0], [0, 4], [2, 4], [1, 2]], float)
    tries = np.array([[0, 1, 2, 3], [0, 1, 0, 1]])
    std = np.sqrt(np.array([4, 16]) / 4)
    expected = [((np.sqrt(np.array([4, 16]) / 3) - std) ** 2).sum(), 4 + ((np.sqrt([4 / 3, 0]) - std) ** 2).sum()]
    assert frechet(z, tries).tolist() == pytest.approx(expected)


def test_the_whole_pool_is_at_distance_0():
    z = np.random.default_rng(0).normal(size=(20, 30))
    assert frechet(z, np.arange(20)[None])[0] == pytest.approx(0, abs=1e-6)
    assert frechet(np.ones((20, 3)), np.arange(6)[None])[0] == 0


def test_both_ways_to_the_eigenvalues_agree():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(40, 9))
    tries = tries_of(40, 4, 8, rng)  # 8 x 8
    wide = np.hstack([z, np.zeros((40, 5))])
    narrow = tries_of(40, 4, 10, rng)  # 9 x 9
    assert frechet(wide, tries) == pytest.approx(frechet(z, tries))
    assert frechet(wide, narrow) == pytest.approx(frechet(z, narrow))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 10)
    return labels, rng.normal(size=(20, 8))[labels] + 0.3 * rng.normal(size=(200, 8))


def test_the_candidate_nearest_in_mean_and_covariance_is_kept(data, started):
    labels, z = data

    def mean_cost(candidates):
        return frechet(
            z, np.array(started(FrechetMatching, labels, z, batch=20, candidates=candidates).epoch_batches(0))
        ).mean()

    assert mean_cost(30) < 0.9 * mean_cost(1)
