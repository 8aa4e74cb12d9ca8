"""Prediction-powered mean: by hand, over all samples of a small population, and against the formula of PPI++."""

from itertools import combinations

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.score.wrong_labels import prediction_powered_mean

TRUE = np.array([1.0, 0, 1, 1, 0, 1, 0])
PREDICTED = np.array([1.0, 0, 0, 1, 1, 1, 0])


def estimate(drawn, weight):
    drawn = np.array(drawn)
    return prediction_powered_mean(TRUE[drawn], PREDICTED[drawn], np.delete(PREDICTED, drawn), weight)


def test_by_hand():
    found = prediction_powered_mean(np.array([1.0, 0, 1]), np.array([1.0, 0, 0]), np.array([1.0, 0, 1]), 0.5)
    # true - 0.5 predicted: 0.5, 0, 1; predictions of all: mean 3 / 6
    assert found.mean == pytest.approx(0.5 + 0.5 * 0.5)
    assert found.variance == pytest.approx((1 - 3 / 6) * 0.25 / 3)


@pytest.mark.parametrize("weight", [0.0, 0.6, 1.0])
def test_mean_and_variance_are_unbiased_over_all_samples(weight):
    every = [estimate(drawn, weight) for drawn in combinations(range(len(TRUE)), 4)]
    means = np.array([one.mean for one in every])
    assert means.mean() == pytest.approx(TRUE.mean(), abs=1e-12)
    assert np.mean([one.variance for one in every]) == pytest.approx(means.var(), abs=1e-12)


def test_the_estimate_is_that_of_ppi_plus_plus():
    rng = np.random.default_rng(0)
    f = rng.normal(size=200)
    true = 0.7 * f[:40] + rng.normal(size=40)
    n, m = 40, 160
    found = prediction_powered_mean(true, f[:n], f[n:])
    weight = np.cov(true, f[:n])[0, 1] / ((1 + n / m) * f[:n].var(ddof=1))  # equation for means of the paper
    assert found.mean == pytest.approx(true.mean() - weight * f[:n].mean() + weight * f[n:].mean(), rel=1e-12)
    # its variance is that of a sample of a population: larger, by the spread of the whole set of units
    theirs = np.var(true - weight * f[:n], ddof=1) / n + weight**2 * f[n:].var(ddof=1) / m
    assert found.variance < theirs


def test_useless_predictions_are_not_used():
    true = np.array([1.0, 0, 1, 0])
    assert prediction_powered_mean(true, 1 - true, np.ones(5)).weight == 0
    assert prediction_powered_mean(true, np.ones(4), np.ones(5)) == pytest.approx((0.5, (1 - 4 / 9) * (1 / 3) / 4, 0))
    with pytest.raises(LikewiseError, match="two true values or more"):
        prediction_powered_mean(true[:1], true[:1], true)
