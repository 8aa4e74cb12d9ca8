"""A calibration from embeddings, for the validation classes and for another gallery, and its curve of probabilities."""

import numpy as np
import pytest
from likewise.types import LikewiseError
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from likewise.deploy.calibration.fit_calibration import (
    CURVE_KNOT_COUNT,
    INVERSE_PENALTY_WEIGHT,
    Target,
    at_most,
    build_calibration,
    calibrate_gallery,
    fit_logistic,
    fit_probability,
    reliability,
)
from likewise.runs.calibration import Validation, check, read_validation


def held(classes=30, each=8, spread=0.5, similarity="cosine"):
    rng, y = np.random.default_rng(0), np.repeat(np.arange(classes), each)
    z = rng.normal(size=(classes, 8))[y] + spread * rng.normal(size=(len(y), 8))
    return Validation(z.astype(np.float32), y, tuple(f"class {c}" for c in range(classes)), similarity)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_its_parts_agree(similarity):
    data, steps = held(similarity=similarity), []
    made = build_calibration(data, Target(rate=0.2), lambda: steps.append(1))
    check(made)
    assert len(steps) == 3 and made.pair.observed <= 0.2 and made.unknown.observed <= 0.2
    unit = data.z / np.linalg.norm(data.z, axis=1, keepdims=True)
    sim = unit @ unit.T if similarity == "cosine" else -np.linalg.norm(data.z[:, None] - data.z, axis=2)
    apart = data.y[:, None] != data.y
    # classes of one size: the mean over pairs of classes is that over pairs of images; one pair may sit at the threshold
    assert (sim >= made.pair.value)[apart].mean() == pytest.approx(made.pair.observed, abs=1e-4)
    other = np.where(apart, sim, -np.inf).max(1)
    assert made.is_unknown(other).mean() == pytest.approx(1 - made.unknown.observed, abs=0.01)
    own = np.where(apart | np.eye(len(sim), dtype=bool), -np.inf, sim).max(1)
    assert made.prevalence == pytest.approx((own >= other).mean(), abs=1e-6)
    assert np.all(np.diff(made.probability(np.linspace(sim.min(), sim.max(), 50))) >= 0)
    assert len(made.curves["pair_bound"]) == len(made.curves["pair_errors"]) <= 200


def test_few_classes_and_lonely_images():
    with pytest.raises(LikewiseError, match="3 validation classes or more, got 2"):
        build_calibration(held(2), Target())
    with pytest.raises(LikewiseError, match="must have two images or more"):
        build_calibration(held(20, 1), Target())
    assert build_calibration(held(3), Target()).pair.value is None


def test_rows_of_all_classes_as_equally_as_possible():
    label = np.repeat([3, 5, 9], [50, 4, 20])
    kept = at_most(np.arange(74), label, 20)
    assert len(kept) == 20 and (np.diff(kept) > 0).all()
    assert np.bincount(label[kept])[[3, 5, 9]].tolist() == [8, 4, 8]
    assert at_most(np.arange(74), label, 74).tolist() == list(range(74))


def test_many_classes_keep_two_rows_of_those_that_are_drawn():
    label = np.repeat(np.arange(400), 5)
    kept = at_most(np.arange(2000), label, 301)
    count = np.bincount(label[kept], minlength=400)
    assert len(kept) == 301
    assert sorted(set(count.tolist())) == [0, 2, 3]
    assert (count > 0).sum() == 150
    lonely = np.concatenate([np.arange(300), np.repeat(np.arange(300, 400), 9)])
    kept = at_most(np.arange(len(lonely)), lonely, 120)
    of_pairs = np.bincount(lonely[kept], minlength=400)[300:]
    assert 118 <= len(kept) <= 120
    assert (of_pairs[of_pairs > 0] > 1).all()


def test_a_larger_gallery_has_a_higher_threshold(calibrated, open_run):
    rng = np.random.default_rng(0)
    small, large = (rng.normal(size=(count, 8)).astype(np.float32) for count in (12, 1200))
    few = calibrate_gallery(open_run.path, small, ["a"] * 6 + ["b"] * 6)
    many = calibrate_gallery(open_run.path, large, [f"class {i % 40} new" for i in range(1200)])
    assert many.unknown.value > few.unknown.value and many.pair == few.pair == calibrated.calibration.pair
    assert many.gallery == {"rows": 1200, "classes": 40} and many.prevalence < few.prevalence
    assert many.unknown.rate == 0.4 and many.curves["pair_errors"] == calibrated.calibration.curves["pair_errors"]


def test_validation_classes_in_the_gallery_are_left_out(calibrated, open_run):
    held = read_validation(open_run.path)
    names = [held.class_name[c] for c in held.y]
    found = calibrate_gallery(open_run.path, held.z, names)  # the gallery of `calibrate` itself
    own = calibrated.calibration
    # the same neighbours, so the same shares of errors, up to the steps between thresholds
    assert np.interp(0.8, found.curves["unknown_threshold"], found.curves["unknown_errors"]) == pytest.approx(
        np.interp(0.8, own.curves["unknown_threshold"], own.curves["unknown_errors"]), abs=0.02
    )
    assert found.unknown.observed < 0.4 and found.unknown.value < 1


def test_what_it_needs(open_run, tmp_path):
    with pytest.raises(LikewiseError, match="is not calibrated; run `likewise calibrate"):
        calibrate_gallery(open_run.path, np.eye(3, 8), ["a"] * 3)


def test_a_gallery_of_another_network(calibrated, open_run):
    for z, names in ((np.eye(3, 5), ["a"] * 3), (np.eye(3, 8), ["a"]), (np.zeros((0, 8)), [])):
        with pytest.raises(LikewiseError, match="one class name for each row of 8 numbers"):
            calibrate_gallery(open_run.path, z, names)


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


def test_a_logistic_regression_by_hand():
    """x is 0 or 1, with 1 of 4 right at 0 and 3 of 4 at 1: the log odds are -log 3 and log 3, but for the penalty.

    Its gradient, b / 1000, moves both ends by b / 1000 / (4 * 3/16) towards each other: by 0.0029 each.
    """
    x, right = np.repeat([0.0, 1.0], 4), np.array([1, 0, 0, 0, 1, 1, 1, 0], bool)
    intercept, slope = fit_logistic(x, right, np.ones(8))
    # the optimiser stops at its own tolerance
    assert (intercept, slope) == (
        pytest.approx(-np.log(3) + 0.0029, abs=1e-3),
        pytest.approx(2 * np.log(3) - 0.0059, abs=2e-3),
    )
    assert fit_logistic(x[[0, 1, 4, 7]], right[[0, 1, 4, 7]], np.array([1.0, 3, 3, 1])) == pytest.approx(
        (intercept, slope), abs=1e-3
    )


@pytest.mark.parity
def test_the_logistic_regression_of_scikit_learn():
    sim, right, weight, _ = world(400)
    weight = weight * np.where(np.arange(400) < 200, 2.0, 0.5)
    theirs = LogisticRegression(C=INVERSE_PENALTY_WEIGHT, tol=1e-8, max_iter=1000)
    theirs.fit(sim[:, None], right, sample_weight=weight)
    # two optimisers that stop at their own tolerances
    assert fit_logistic(sim.astype(np.float64), right, weight) == pytest.approx(
        (theirs.intercept_[0], theirs.coef_[0, 0]), rel=5e-3
    )


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
