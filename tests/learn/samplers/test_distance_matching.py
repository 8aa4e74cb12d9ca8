import numpy as np
import pytest
from likewise.samplers import DistanceMatching

from likewise.learn.samplers.distance_matching import heights_apart, histograms, moments_apart, wasserstein


def distances(z):
    return [sum((a - b) ** 2 for a, b in zip(z[i], z[j])) ** 0.5 for i in range(len(z)) for j in range(i)]


@pytest.fixture
def pool():
    rng = np.random.default_rng(0)
    tries = np.stack([rng.choice(40, 12, replace=False) for _ in range(5)])
    return rng.normal(size=(40, 6)), tries


def test_histograms_by_hand(pool):
    z, tries = pool
    shares, aim, width = histograms(z, tries, 10)
    all_ = distances(z.tolist())
    assert width == pytest.approx((max(all_) - min(all_)) / 10)
    for rows, found in [(range(40), aim), *zip(tries, shares)]:
        count = [0] * 10
        some = distances(z[list(rows)].tolist())
        for d in some:
            count[min(int((d - min(all_)) / width), 9)] += 1
        assert found.tolist() == pytest.approx([c / len(some) for c in count])


def test_an_image_that_stands_twice_is_a_pair_at_distance_0():
    shares, aim, _ = histograms(np.array([[0.0], [1.0], [3.0]]), np.array([[0, 0], [0, 2]]), 2)
    assert aim.tolist() == [1 / 3, 2 / 3]  # 1 | 2, 3
    assert shares.tolist() == [[1, 0], [0, 1]]


def test_wasserstein_of_two_spikes_is_how_far_they_stand_apart():
    spikes = np.eye(50)[[0, 40, 49]]
    assert wasserstein(spikes, spikes[0], 0.02).tolist() == pytest.approx([0, 0.8, 0.98])
    assert heights_apart(spikes, spikes[0]).tolist() == [0, 0, 0]  # the published cost is blind to it


def test_costs_agree_with_scipy(pool):
    stats = pytest.importorskip("scipy.stats")
    z, tries = pool
    shares, aim, width = histograms(z, tries, 10)
    middle = np.arange(10) * width
    expected = [stats.wasserstein_distance(middle, middle, s, aim) for s in shares]
    assert wasserstein(shares, aim, width).tolist() == pytest.approx(expected)
    assert heights_apart(shares, aim).tolist() == pytest.approx([stats.wasserstein_distance(s, aim) for s in shares])


def test_moments_by_hand(pool):
    z, tries = pool
    for t, found in zip(tries, moments_apart(z, tries)):
        mean = np.linalg.norm(z[t].mean(0) - z.mean(0))
        assert found == pytest.approx(mean + np.linalg.norm(z[t].std(0) - z.std(0)))


@pytest.fixture
def data():
    """Half of the classes in one tight heap, half far apart: distances of a batch depend on its classes."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 10)
    return labels, np.where(labels[:, None] < 10, 0.1, 5) * rng.normal(size=(200, 8))


def test_the_candidate_with_the_nearest_distances_is_kept(data, started):
    labels, z = data
    _, aim, width = histograms(z, np.zeros((1, 2), np.int64), 50)

    def mean_cost(**settings):
        batches = np.array(started(DistanceMatching, labels, z, batch=20, **settings).epoch_batches(0))
        return wasserstein(histograms(z, batches, 50)[0], aim, width).mean()

    assert mean_cost(candidates=30) < 0.7 * mean_cost(candidates=1)
    assert mean_cost(candidates=30) < mean_cost(candidates=30, published_cost=True)
