"""The probability curve: the likelihood by hand, isotonic regression as a second opinion, and reliability."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from likewise.deploy.calibration.fit_calibration import CURVE_KNOT_COUNT, fit_probability, reliability


def world(count=4000, seed=0):
    rng = np.random.default_rng(seed)
    sim = rng.uniform(0.2, 1, count).astype(np.float32)
    return sim, rng.random(count) < expit(10 * (sim - 0.5)), np.ones(count), rng.integers(40, size=count)


@pytest.mark.parity
def test_the_curve_of_largest_likelihood():
    sim, right, weight, _ = world(400)
    weight = weight * np.where(np.arange(400) < 200, 2.0, 0.5)

    def loss(ab):
        p = expit(ab[0] + ab[1] * sim)
        return -(weight * np.where(right, np.log(p), np.log(1 - p))).sum()

    a, b = minimize(loss, [0.0, 1.0]).x
    knots, probability = fit_probability(sim, right, weight)
    assert len(knots) == CURVE_KNOT_COUNT
    # two optimisers that stop at their own tolerances, and a penalty of 1e-3 on a likelihood of 400 samples
    np.testing.assert_allclose(probability, expit(a + b * knots), atol=2e-3)
    middle = np.linspace(sim.min(), sim.max(), 500)
    np.testing.assert_allclose(np.interp(middle, knots, probability), expit(a + b * middle), atol=0.005)


@pytest.mark.parity
def test_isotonic_regression_agrees_where_there_are_many_samples():
    sim, right, weight, _ = world()
    knots, probability = fit_probability(sim, right, weight)
    other = IsotonicRegression(out_of_bounds="clip").fit(sim, right)
    middle = np.linspace(0.3, 0.9, 50)  # steps of about 100 samples: a standard error of 0.05 at most, three of them
    np.testing.assert_allclose(np.interp(middle, knots, probability), other.predict(middle), atol=0.15)


def test_ends_that_so_few_samples_cannot_tell():
    sim = np.linspace(0, 1, 8)
    knots, probability = fit_probability(sim, np.ones(8, bool), np.ones(8))
    assert probability.tolist() == pytest.approx([0.9] * len(knots))
    _, split = fit_probability(sim, sim > 0.5, np.ones(8))
    assert split.min() == pytest.approx(0.1) and split.max() == pytest.approx(0.9)
    _, against = fit_probability(sim, sim < 0.5, np.ones(8))  # more similar and less right: no curve
    assert against.tolist() == pytest.approx([0.5] * len(knots))
    assert len(fit_probability(np.full(5, 0.3), np.ones(5, bool), np.ones(5))[0]) == 1


def test_reliability():
    sim, right, weight, y = world()
    found = reliability(sim, right, weight, y)
    assert sum(found["reliability_share"]) == pytest.approx(1, abs=1e-4)
    said, seen = np.asarray(found["reliability_predicted"]), np.asarray(found["reliability_observed"])
    assert (np.diff(said) > 0).all()
    np.testing.assert_allclose(
        said, seen, atol=0.1
    )  # 400 samples a bin: a standard error of 0.025 at most, four of them
    share = np.asarray(found["reliability_share"])
    assert found["calibration_error"][0] == pytest.approx((share * np.abs(said - seen)).sum(), abs=1e-5)


def test_held_out_classes_show_what_a_curve_cannot_know():
    """Half of the classes are right at every similarity, half never: within a class, the curve without it is off by a half."""
    y = np.repeat(np.arange(10), 50)
    sim = np.random.default_rng(0).random(500)
    right = y % 2 == 0
    found = reliability(sim, right, np.ones(500), y)
    assert np.allclose(found["reliability_predicted"], 0.5, atol=0.2)
