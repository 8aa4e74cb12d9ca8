"""Imputed scores: draws follow the posterior, injected noise has the fitted shares, and uniform noise is corrected."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from stored_scores import StoredScores

from likewise.core.retrieval.ranking import nearest
from likewise.labels.label_imputation import Imputation, draw_labels, impute_scores, inject
from likewise.labels.label_noise import Noise
from likewise.score.fixed_ranking import FixedRanking

TABLE = torch.tensor([[0.0, 0.75, 0.25], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)


def noise(any_share=0.1, similar=0.2, table=TABLE):
    return Noise((1.0,), any_share, similar, table, torch.full((3,), 1 / 3, dtype=torch.float64).log(), 1.0, 100)


def test_injected_noise_has_the_probabilities_of_the_noise():
    true = torch.arange(3).repeat_interleave(20000)
    given = inject(true, noise(), torch.Generator().manual_seed(0))
    expected = [
        [0.7, 0.05 + 0.15, 0.05 + 0.05],
        [0.05 + 0.2, 0.7, 0.05],
        [0.05, 0.05, 0.9],
    ]  # class 2 has no similar class
    for c in range(3):
        count = np.bincount(given[true == c], minlength=3)
        assert chisquare(count, 20000 * np.array(expected[c])).pvalue > 1e-4


def test_draws_follow_the_posterior():
    scores = torch.tensor([[[0.0, 1.0, 2.0]] * 1, [[0.0, 1.0, 2.0]] * 1]).mean(0, keepdim=True).double()
    each, y = StoredScores(scores), torch.tensor([0])
    drawn, top = draw_labels(each, noise(), y, 20000, torch.Generator().manual_seed(0))
    e = np.exp([0.0, 1.0, 2.0])
    # P(given 0 | true): right; exchanged from class 1 (any or similar); exchanged from class 2 (any)
    posterior = e * [0.7, 0.05 + 0.2, 0.05]
    posterior /= posterior.sum()
    assert chisquare(np.bincount(drawn[:, 0], minlength=3), 20000 * posterior).pvalue > 1e-4
    assert top.tolist() == [int(posterior.argmax())]


def test_the_standard_error_by_hand():
    found = Imputation(*(np.array([v, v]) for v in (0.5, 0.7, 1e-4)), np.array([-0.1, -0.1]), np.array([0.9, 0.3]), 0.2)
    parts = 1e-4 + (0.4 * 0.1) ** 2 + (0.008 * 0.8) ** 2 + (0.1 * 0.3) ** 2
    assert found.value == pytest.approx([0.8, 0.8]) and found.error[0] == pytest.approx(np.sqrt(parts))
    assert np.isinf(found.error[1])  # less than half of a probe was noticed


def world(share):
    """Twelve classes of 14: too small for noise between similar classes to be fitted, which takes most of the time."""
    rng = np.random.default_rng(0)
    y, count = np.repeat(np.arange(12), 14), 12 * 14
    x = torch.as_tensor((2 * rng.normal(size=(12, 8))[y] + rng.normal(size=(count, 8))).astype(np.float32))
    wrong = rng.random(count) < share
    given = np.where(wrong, (y + rng.integers(1, 12, count)) % 12, y)
    row = nearest(x, x, 60, own=torch.arange(count))[0]
    return x, torch.as_tensor(y), torch.as_tensor(given), FixedRanking(torch.arange(count), row, torch.ones(count) > 0)


def test_uniform_noise_is_corrected_and_unnoticed_noise_is_said():
    x, true, given, ranking = world(0.2)
    names = ("R@1", "RP", "MAP@R")
    clean, plain = ranking.means(true, names), ranking.means(given, names)
    found = impute_scores(x, given, 12, lambda y: ranking.means(y, names), draws=6, replicates=2)
    assert (found.plain == plain).all() and abs(found.wrong - 0.2) < 0.08
    assert (np.abs(found.value - clean) < 0.15 * (clean - plain)).all()
    assert np.isinf(
        found.error
    ).all()  # in such small classes, a probe of noise between similar classes was not noticed


def test_features_without_information_give_no_score():
    _, _, given, ranking = world(0.2)
    x = torch.randn(len(given), 8, generator=torch.Generator().manual_seed(0))
    assert impute_scores(x, given, 12, lambda y: ranking.means(y, ["R@1"]), draws=2, replicates=2) is None
