"""Bounds of error rates: by hand, by counting every split, against scipy, and how often they hold in simulated worlds."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from likewise.deploy.calibration.false_accepts import first_within, smallest_rate, upper_rates


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
