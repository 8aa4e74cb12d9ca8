"""Thresholds: errors without a class equal those of data without it, and rates that cannot be promised are refused."""

import numpy as np
import pytest

from likewise.deploy.calibration.false_accepts import smallest_rate, upper_rates
from likewise.deploy.calibration.thresholds import (
    Nearest,
    PairRates,
    Promise,
    choose,
    effective_classes,
    nearest_among,
    pair_rates,
    prepare,
    promise_of_neighbours,
    promise_of_pairs,
    share_of_wrong,
    sums,
    weights,
)

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
