"""Thresholds: shares of pairs and neighbours pair by pair, bounds of error rates, rates that are refused, and promises."""

import itertools
import math

import numpy as np
import pytest
from made_calibration import threshold
from scipy import stats
from sklearn.metrics import roc_curve

from likewise.deploy.calibration.threshold_promises import (
    Nearest,
    PairRates,
    Promise,
    accepted,
    choose,
    compare,
    describe_promise,
    effective_classes,
    first_within,
    make_grid,
    nearest_among,
    nearest_in,
    pair_rates,
    percent,
    prepare,
    promise_of_neighbours,
    promise_of_pairs,
    share_of_wrong,
    smallest_rate,
    sums,
    upper_rates,
    weights,
)

RNG = np.random.default_rng(0)
TOY_Y = np.array([0, 1, 2, 0, 1, 2, 3, 0, 3, 1, 2, 3, 3])
GROUP = np.array([-1, 5, 6, -1, 5, 7, 8, 9, 8, 10, 6, 11, 12])


def toy(similarity="cosine"):
    return prepare(np.random.default_rng(0).normal(size=(13, 3)) + np.eye(4, 3)[TOY_Y], similarity)


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
    found = pair_rates(z, TOY_Y, GROUP, "cosine")
    for k in range(0, len(found.threshold), 37):
        t = found.threshold[k]
        for c in range(4):
            shares = []
            for other in set(range(4)) - {c}:
                sims = [
                    by_hand(z[i], z[j], "cosine")
                    for i in np.flatnonzero(c == TOY_Y)
                    for j in np.flatnonzero(other == TOY_Y)
                ]
                if min(abs(s - t) for s in sims) < 1e-6:  # a threshold at a similarity: rounding decides
                    break
                shares.append(np.mean([s >= t for s in sims]))
            else:
                assert found.different[c, k] == pytest.approx(np.mean(shares), abs=1e-12)
    pairs = [
        (i, j) for i in range(13) for j in range(i) if TOY_Y[i] == TOY_Y[j] and (GROUP[i] != GROUP[j] or GROUP[i] < 0)
    ]
    apart = sum(TOY_Y[i] != TOY_Y[j] for i in range(13) for j in range(i))
    assert found.prevalence == pytest.approx(len(pairs) / (len(pairs) + apart), abs=1e-12)
    middle = [np.mean([z[i] @ z[j] >= found.threshold[60] for i, j in pairs if TOY_Y[i] == c]) for c in range(4)]
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
    found = nearest_among(z, TOY_Y, GROUP, similarity)
    order = np.argsort(TOY_Y, kind="stable")
    assert found.y.tolist() == TOY_Y[order].tolist()
    for place, i in enumerate(order):
        own = [by_hand(z[i], z[j], similarity) for j in range(13)
               if j != i and TOY_Y[j] == TOY_Y[i] and (GROUP[i] != GROUP[j] or GROUP[i] < 0)]  # fmt: skip
        best = sorted(
            (max(by_hand(z[i], z[j], similarity) for j in np.flatnonzero(c == TOY_Y)), c)
            for c in set(range(4)) - {TOY_Y[i]}
        )
        assert found.own[place] == pytest.approx(max(own, default=-np.inf), abs=1e-4)
        assert found.other[place] == pytest.approx(best[-1][0], abs=1e-4) and found.other_class[place] == best[-1][1]
        assert found.second[place] == pytest.approx(best[-2][0], abs=1e-4)


def test_a_gallery_of_other_classes_by_hand():
    z, gallery = toy(), prepare(RNG.normal(size=(6, 3)), "cosine")
    label = np.array([0, 0, 4, 4, 5, 5])  # class 0 is in both; a class of the gallery has two rows
    found = nearest_in(z, TOY_Y, None, "cosine", gallery, label)
    for i in range(13):
        other = max(float(z[i] @ gallery[j]) for j in range(6) if label[j] != TOY_Y[i])
        mine = sorted(float(z[i] @ z[j]) for j in range(13) if j != i and TOY_Y[j] == TOY_Y[i])
        assert found.other[i] == pytest.approx(other, abs=1e-6)
        assert (
            mine[1 if len(mine) > 2 else 0] - 1e-6 <= found.own[i] <= mine[-1] + 1e-6
        )  # the better of two random ones
    assert found.other_class is None and found.second is None


def test_the_smallest_rate_by_counting_every_split():
    units = 5
    halves = list(itertools.combinations(range(2 * units), units))
    for bad in range(units + 1):  # the first `bad` units are errors: how often does validation hold none of them?
        missed = np.mean([all(unit >= bad for unit in half) for half in halves])
        assert (missed > 0.05) == (bad <= smallest_rate(units) * units + 1e-9)
    assert smallest_rate(16) == 4 / 16 and smallest_rate(1000) == 0.004 and smallest_rate(10) == 0.3
    assert smallest_rate(1) == 1 and smallest_rate(0) == 1


def test_a_bound_by_hand():
    rate, left_out = np.array([0.2, 0.0]), np.array([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]])
    spread = 2 / 3 * (0.1**2 + 0 + 0.1**2)
    t = 2.919985580355516  # of 2 degrees of freedom, one-sided 95 %
    want = 0.2 * math.exp(t * math.sqrt(2 * spread) / 0.2)
    assert want > 1 and upper_rates(rate, left_out, 0.05).tolist() == [1.0, 0.05]
    small = upper_rates(rate, rate + (left_out - rate) / 100, 0.05)  # float64: equal to a few units of the last place
    np.testing.assert_allclose(small, [0.2 * math.exp(t * math.sqrt(2 * spread) / 20), 0.05], rtol=1e-12)
    half = upper_rates(rate, rate + (left_out - rate) / 100, 0.05, shared=np.array([1.0, 1.0]))
    np.testing.assert_allclose(half[0], 0.2 * math.exp(t * math.sqrt(spread) / 20), rtol=1e-12)


@pytest.mark.parity
def test_the_bound_of_a_mean_is_that_of_scipy():
    value = np.random.default_rng(0).gamma(2, 0.01, size=30)
    mean = value.mean()
    left_out = (30 * mean - value)[:, None] / 29
    error = stats.sem(value) * math.sqrt(2)
    want = mean * math.exp(stats.t.ppf(0.95, 29) * error / mean)
    np.testing.assert_allclose(upper_rates(np.array([mean]), left_out, 0.0), want, rtol=1e-12)


def test_the_first_threshold_within():
    upper = np.array([0.5, 0.2, 0.3, 0.1])
    assert first_within(upper, 0.3) == 1 and first_within(upper, 0.05) is None


def test_new_classes_keep_the_rate_in_simulated_worlds():
    """1,000 worlds of 40 validation and 40 new classes: 0.95 is seen with a standard error of 0.007, and 0.93 is three below."""
    rng, worlds, classes, asked = np.random.default_rng(1), 1000, 40, 0.1
    threshold = np.linspace(0, 4, 41)
    mean = rng.normal(size=(worlds, 2 * classes)) * 0.7  # of the nearest similarity of a class, with unit spread
    share = stats.norm.sf(threshold - mean[..., None])
    held = []
    for each in share:
        val, new = each[:classes], each[classes:]
        rate = val.mean(0)
        left_out = (classes * rate - val) / (classes - 1)
        at = first_within(upper_rates(rate, left_out, smallest_rate(classes)), asked)
        held.append(at is not None and new[:, at].mean() <= asked)
    assert np.mean(held) >= 0.93


Y = np.repeat(np.arange(20), 6)
Z = prepare(
    np.random.default_rng(0).normal(size=(20, 6))[Y] + 0.8 * np.random.default_rng(1).normal(size=(120, 6)), "cosine"
)


def without(c):
    kept = c != Y
    return Z[kept], np.unique(Y[kept], return_inverse=True)[1]


def test_the_bound_of_pairs_leaves_out_whole_classes():
    rates = pair_rates(Z, Y, None, "cosine")
    left_out = []
    for c in range(20):
        others = np.setdiff1d(np.arange(20), c)
        each = np.zeros((19, len(rates.threshold)))
        for place, a in enumerate(others):
            for b in np.setdiff1d(others, a):
                sim = (Z[a == Y] @ Z[b == Y].T).ravel()
                each[place] += (sim[:, None] >= rates.threshold).mean(0) / 18
        left_out.append(each.mean(0))
    found = promise_of_pairs(rates, "false accepts")
    want = upper_rates(found.errors, np.asarray(left_out), smallest_rate(190))
    # a similarity at a threshold is accepted or not by rounding: one of 36 pairs of images, of 190 pairs of classes
    np.testing.assert_allclose(found.upper, want, rtol=0.05, atol=2e-4)
    assert found.least == pytest.approx(4 / 190) and (found.upper >= found.errors).all() and found.classes == 20


def test_the_bound_of_neighbours_leaves_out_whole_classes():
    found = nearest_among(Z, Y, None, "cosine")
    threshold = np.linspace(0.05, 0.99, 23)
    total, left_out, shared = sums(found, found.other, found.second, weights(found), threshold)
    for c in range(20):
        part = nearest_among(*without(c), None, "cosine")
        want = (part.other[:, None] >= threshold).sum(0) / 6
        np.testing.assert_allclose(left_out[c], want, atol=1e-9)
    np.testing.assert_allclose(total, (found.other[:, None] >= threshold).sum(0) / 6, atol=1e-9)
    lost = np.zeros(len(threshold))  # by hand: what a pair of classes loses without each other
    for a in range(20):
        for b in range(a):
            here = ((found.y == a) & (found.other_class == b)) | ((found.y == b) & (found.other_class == a))
            fewer = (found.other[here][:, None] >= threshold).sum(0) - (found.second[here][:, None] >= threshold).sum(0)
            lost += (fewer / 6) ** 2
    np.testing.assert_allclose(shared, lost, atol=1e-9)


def test_a_fixed_gallery_leaves_out_queries_only():
    found = Nearest(np.array([0, 0, 1]), np.zeros(3), np.array([0.1, 0.5, 0.9]))
    total, left_out, shared = sums(found, found.other, None, weights(found), np.array([0.3, 0.7]))
    assert total.tolist() == [1.5, 1.0] and left_out.tolist() == [[1.0, 1.0], [0.5, 0.0]] and shared is None


def test_precision_by_hand():
    assert share_of_wrong(np.array([0.1, 0.0]), np.array([0.6, 0.0]), 0.25).tolist() == pytest.approx(
        [0.75 * 0.1 / (0.75 * 0.1 + 0.25 * 0.6), 0]
    )
    y, own, other = np.array([0, 0, 1, 1]), np.array([0.9, 0.2, 0.8, -np.inf]), np.array([0.3, 0.5, 0.1, 0.9])
    found = promise_of_neighbours(Nearest(y, own, other), "cosine", "precision")
    at = np.searchsorted(
        found.threshold, 0.4
    )  # accepted: a right and a wrong one of class 0, the only known one of class 1
    assert found.errors[at] == pytest.approx(0.5 / 2) and found.true_accepts[at] == pytest.approx(1)
    at = np.searchsorted(found.threshold, 0.6)  # the wrong one of class 0 is not accepted any more
    assert found.errors[at] == 0 and found.true_accepts[at] == pytest.approx(0.75)
    assert effective_classes(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])).tolist() == [2, 1, 0]


def test_the_precision_of_pairs_leaves_out_whole_classes():
    rates = pair_rates(Z, Y, None, "cosine")
    found = promise_of_pairs(rates, "precision")
    left_out = []
    for c in range(20):
        kept = np.setdiff1d(np.arange(20), c)
        far = (20 * rates.different.mean(0) - 2 * rates.different[c]) / 18
        left_out.append(share_of_wrong(far, rates.same[kept].mean(0), rates.prevalence))
    sides = effective_classes(rates.same)
    units = [int(n * (n - 1) / 2) for n in sides]  # classes that are really one, accepted as often as one class
    least = [1.0 if n < 1 else share_of_wrong(smallest_rate(u), 1.0, rates.prevalence) for u, n in zip(units, sides)]
    np.testing.assert_allclose(found.upper, upper_rates(found.errors, np.asarray(left_out), np.array(least)), rtol=1e-9)
    assert found.upper[-1] == 1  # a threshold that accepts nothing promises nothing


def promise(upper, least=0.04):
    at = np.linspace(0, 1, len(upper))
    return Promise(at, np.asarray(upper) / 2, np.asarray(upper), 1 - at, least, 100, "pairs")


def test_the_lowest_threshold_that_keeps_the_rate():
    found = choose(promise([0.5, 0.2, 0.1, 0.05, 0.04]), 0.1, 0.01, "false accepts")
    assert (found.value, found.rate, found.observed, found.true_accepts) == (0.5, 0.1, 0.05, 0.5)
    assert found.smallest_rate == 0.04 and found.reason == ""
    default = choose(promise([0.5, 0.2, 0.1, 0.05, 0.04]), None, 0.01, "false accepts")
    assert (default.value, default.rate) == (1.0, 0.04)  # the smallest rate that can be promised


def test_a_rate_that_cannot_be_promised_is_refused():
    found = choose(promise([0.5, 0.2, 0.041234]), 0.01, 0.01, "false accepts")
    assert found.value is None and np.isnan(found.observed) and found.smallest_rate == 0.041234
    assert found.reason.startswith("100 validation classes can promise a false-accept rate of 0.0413 for pairs, not a")
    found = choose(promise([0.5, 0.2, 0.0412]), 0.01, 0.01, "precision")
    assert "can promise a precision of 0.958 for pairs, not a precision of 0.99; request that" in found.reason
    few = choose(promise([1.0, 0.75], 0.75), None, 0.01, "false accepts")
    assert few.value is None and few.smallest_rate == 0.75  # no default beyond a half
    assert choose(promise([1.0, 0.75], 0.75), 0.8, 0.01, "false accepts").value == 1.0  # but if asked for


def test_no_same_pairs_accept_nothing():
    rates = PairRates(np.array([0.1, 0.5]), np.array([[0.5, 0.0]] * 3), np.zeros((0, 2)), np.zeros(0, np.int64), 0.0)
    assert promise_of_pairs(rates, "precision").upper.tolist() == [1, 1]


def test_promises_by_hand():
    first = "On new classes like the 30 validation classes, in 95 % of draws, at "
    assert describe_promise(threshold(0.5)) == (
        f"{first}most 1 % of images of a class that is not in the gallery are taken for a known class. Among images of known "
        "classes, 90 % are accepted."
    )
    assert describe_promise(threshold(0.5, true_accepts=math.nan, rate=0.005), "pair") == (
        f"{first}most 0.5 % of pairs of images of two classes are taken for one class."
    )
    right = {"aim": "precision", "rate": 0.05}
    assert describe_promise(threshold(0.5, **right)).startswith(
        f"{first}least 95 % of accepted images get the right class, if"
    )
    assert describe_promise(threshold(0.5, **right), "pair").startswith(
        f"{first}least 95 % of accepted pairs show one class, if"
    )
    assert describe_promise(threshold(None)) == "No threshold: 30 classes promise 0.2 at best."
    assert percent(0.95) == "95 %" and percent(0.0123456) == "1.23 %"
