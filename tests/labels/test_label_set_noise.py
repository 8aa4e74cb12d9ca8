"""Noise of label sets: posteriors by hand, the gradient of the fit, shares that are found, and orders that change nothing."""

import numpy as np
import pytest
import torch
from made_label_sets import features_of, label_matrix, noisy_matrix

from likewise.labels.label_set_noise import LabelSetNoise, _Likelihood, judge_labels


def test_posterior_by_hand():
    """One label, p = 0.8, 20 % missing, 1 % superfluous: two lines of the formula of Bayes."""
    odds = float(np.log(0.8 / 0.2))
    noise = LabelSetNoise(*(torch.tensor(v) for v in ([[1.0]], [0.0], [0.2], [0.01], [0.0])), 1)
    found = noise.wrong(torch.full((1, 2, 1), odds), torch.tensor([[1.0], [0.0]]))
    assert found[0, 0].item() == pytest.approx(0.2 * 0.01 / (0.2 * 0.01 + 0.8 * 0.8), rel=1e-5)
    assert found[1, 0].item() == pytest.approx(0.8 * 0.2 / (0.8 * 0.2 + 0.2 * 0.99), rel=1e-5)


def test_the_gradient_is_that_of_the_objective():
    g = torch.Generator().manual_seed(0)
    scores, has = torch.randn(2, 30, 3, generator=g), (torch.rand(30, 3, generator=g) < 0.4).float()
    fit = _Likelihood(scores, has, has.mean(0))
    point = fit.start.numpy() + 0.1 * np.random.default_rng(0).normal(size=len(fit.start))
    _, gradient = fit.objective(point)
    for place in range(len(point)):
        step = np.zeros_like(point)
        step[place] = 1e-5
        slope = (fit.objective(point + step)[0] - fit.objective(point - step)[0]) / 2e-5
        assert gradient[place] == pytest.approx(slope, rel=1e-5, abs=1e-8)  # the second difference of float64


def judged(has, x, **settings):
    given = torch.tensor(has).float()
    with torch.no_grad():
        each, noise = judge_labels(torch.tensor(x), given, setting=(True, 0.5), **settings)
        wrong = torch.cat([noise.wrong(each.scores(rows).double(), given[rows]) for rows in each.blocks()])
    return noise, wrong.numpy()


def test_the_shares_of_missing_and_superfluous_labels_are_found():
    has = label_matrix(1500)
    noise, wrong = judged(noisy_matrix(has, 0.15, 0.03), features_of(has))
    assert 0.11 < noise.missing.mean() < 0.19 and 0.02 < noise.superfluous.mean() < 0.045
    assert bool(noise.informative.all())
    error = noisy_matrix(has, 0.15, 0.03) != has
    assert abs(wrong.sum() - error.sum()) < 0.15 * error.sum()


def test_labels_without_a_trace_in_the_features_are_not_informative():
    has = label_matrix(300)
    has[:, 5] = np.random.default_rng(5).random(300) < 0.4
    noise, _ = judged(has, features_of(label_matrix(300, seed=9)))
    assert not noise.informative[5]


def test_the_order_of_labels_changes_nothing():
    has, order = label_matrix(300), np.array([3, 0, 5, 1, 4, 2])
    noisy, x = noisy_matrix(has), features_of(has)
    _, first = judged(noisy, x)
    _, second = judged(noisy[:, order], x)
    # L-BFGS stops at a relative change of 1e-6 of the likelihood, at another point in another order
    np.testing.assert_allclose(first[:, order], second, atol=0.02)


def test_the_order_of_samples_changes_little():
    """Another order gives other folds, so probabilities differ a little, and the flagged states hardly."""
    has, order = label_matrix(600), np.random.default_rng(3).permutation(600)
    noisy, x = noisy_matrix(has), features_of(has)
    _, first = judged(noisy, x)
    _, second = judged(noisy[order], x[order])
    assert ((first[order] > 0.5) != (second > 0.5)).mean() < 0.01
