"""Shares of accepted pairs and nearest neighbours, pair by pair in plain Python."""

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from likewise.deploy.calibration.thresholds import (
    accepted,
    compare,
    make_grid,
    nearest_among,
    nearest_in,
    pair_rates,
    prepare,
)

RNG = np.random.default_rng(0)
Y = np.array([0, 1, 2, 0, 1, 2, 3, 0, 3, 1, 2, 3, 3])
GROUP = np.array([-1, 5, 6, -1, 5, 7, 8, 9, 8, 10, 6, 11, 12])


def toy(similarity="cosine"):
    return prepare(np.random.default_rng(0).normal(size=(13, 3)) + np.eye(4, 3)[Y], similarity)


def by_hand(a, b, similarity):
    return float(a @ b) if similarity == "cosine" else -float(np.sqrt(((a - b) ** 2).sum()))


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_similarities_by_hand(similarity):
    z = toy(similarity)
    want = [[by_hand(a, b, similarity) for b in z] for a in z]
    # float32 sums of three terms; the root of a rounded square near 0 is off by 1e-3
    np.testing.assert_allclose(compare(z, z, similarity), want, atol=2e-3 if similarity == "euclidean" else 1e-6)


def test_shares_of_pairs_by_hand():
    z = toy()
    found = pair_rates(z, Y, GROUP, "cosine")
    for k in range(0, len(found.threshold), 37):
        t = found.threshold[k]
        for c in range(4):
            shares = []
            for other in set(range(4)) - {c}:
                sims = [
                    by_hand(z[i], z[j], "cosine") for i in np.flatnonzero(c == Y) for j in np.flatnonzero(other == Y)
                ]
                if min(abs(s - t) for s in sims) < 1e-6:  # a threshold at a similarity: rounding decides
                    break
                shares.append(np.mean([s >= t for s in sims]))
            else:
                assert found.different[c, k] == pytest.approx(np.mean(shares), abs=1e-12)
    pairs = [(i, j) for i in range(13) for j in range(i) if Y[i] == Y[j] and (GROUP[i] != GROUP[j] or GROUP[i] < 0)]
    apart = sum(Y[i] != Y[j] for i in range(13) for j in range(i))
    assert found.prevalence == pytest.approx(len(pairs) / (len(pairs) + apart), abs=1e-12)
    middle = [np.mean([z[i] @ z[j] >= found.threshold[60] for i, j in pairs if Y[i] == c]) for c in range(4)]
    assert found.same[:, 60].tolist() == pytest.approx(middle, abs=1e-12) and found.same_class.tolist() == [0, 1, 2, 3]
    assert (found.different[:, -1] == 0).all() and (found.different[:, 0] > 0).any()


@pytest.mark.parity
def test_classes_of_one_size_give_the_roc_curve_of_scikit_learn():
    rng, y = np.random.default_rng(1), np.repeat(np.arange(6), 5)
    z = prepare(rng.normal(size=(30, 8)) + np.eye(6, 8)[y], "cosine")
    found = pair_rates(z, y, None, "cosine")
    i, j = np.triu_indices(30, 1)
    far, tar, at = roc_curve(y[i] == y[j], compare(z, z, "cosine")[i, j], drop_intermediate=False)
    place = [np.flatnonzero(at >= t)[-1] for t in found.threshold]
    # sums of shares in another order; a sampled quantile may equal a similarity up to rounding, which moves one of 375 pairs
    np.testing.assert_allclose(found.different.mean(0), far[place], atol=1.01 / 375)
    np.testing.assert_allclose(found.same.mean(0), tar[place], atol=1.01 / 60)


def test_sums_of_weights_by_hand():
    sim, unit, weight = np.array([0.1, 0.5, 0.9, 0.5]), np.array([0, 0, 0, 1]), np.array([1.0, 2.0, 4.0, 8.0])
    assert accepted(sim, unit, weight, np.array([0.1, 0.5, 0.6]), 2).tolist() == [[7, 6, 4], [8, 8, 0]]


def test_no_similarity_of_different_classes_reaches_the_last_threshold():
    for similarity, top in (("cosine", 1 + 1e-6), ("euclidean", 0.0)):
        grid = make_grid(np.array([top - 0.5, top - 0.25, top]), similarity)
        assert (np.diff(grid) > 0).all() and grid[-1] > top


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_nearest_neighbours_by_hand(similarity):
    z = toy(similarity)
    found = nearest_among(z, Y, GROUP, similarity)
    order = np.argsort(Y, kind="stable")
    assert found.y.tolist() == Y[order].tolist()
    for place, i in enumerate(order):
        own = [by_hand(z[i], z[j], similarity) for j in range(13)
               if j != i and Y[j] == Y[i] and (GROUP[i] != GROUP[j] or GROUP[i] < 0)]  # fmt: skip
        best = sorted(
            (max(by_hand(z[i], z[j], similarity) for j in np.flatnonzero(c == Y)), c) for c in set(range(4)) - {Y[i]}
        )
        assert found.own[place] == pytest.approx(max(own, default=-np.inf), abs=1e-4)
        assert found.other[place] == pytest.approx(best[-1][0], abs=1e-4) and found.other_class[place] == best[-1][1]
        assert found.second[place] == pytest.approx(best[-2][0], abs=1e-4)


def test_a_gallery_of_other_classes_by_hand():
    z, gallery = toy(), prepare(RNG.normal(size=(6, 3)), "cosine")
    label = np.array([0, 0, 4, 4, 5, 5])  # class 0 is in both; a class of the gallery has two rows
    found = nearest_in(z, Y, None, "cosine", gallery, label)
    for i in range(13):
        other = max(float(z[i] @ gallery[j]) for j in range(6) if label[j] != Y[i])
        mine = sorted(float(z[i] @ z[j]) for j in range(13) if j != i and Y[j] == Y[i])
        assert found.other[i] == pytest.approx(other, abs=1e-6)
        assert (
            mine[1 if len(mine) > 2 else 0] - 1e-6 <= found.own[i] <= mine[-1] + 1e-6
        )  # the better of two random ones
    assert found.other_class is None and found.second is None
