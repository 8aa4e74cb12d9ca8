"""The noise model: probabilities, posterior and likelihood by hand, and noise that is recovered from simulated scores."""

import math

import numpy as np
import pytest
import torch
from made_label_sets import features_of, label_matrix, noisy_matrix
from numeric_slopes import assert_gradient
from stored_scores import StoredScores
from torch.nn import functional as F

from likewise.labels import label_noise
from likewise.labels.label_evidence import discriminate_sets
from likewise.labels.label_noise import (
    MIN_PRIOR_SAMPLES,
    SIMILAR_CLASSES_COUNT,
    SIMILAR_ONLY_SHARE,
    Evidence,
    LabelSetNoise,
    Noise,
    _LabelLikelihood,
    _Likelihood,
    all_entries,
    class_probabilities,
    fit_noise,
    log_frequencies_slope,
    nearest_table,
    row_blocks,
    true_frequencies,
)


def world(n=4000, classes=8, uniform=0.0, similar=0.0, apart=5.0, pair=0.0, seed=0):
    """Exact log densities of Gaussian classes, of which 2c and 2c + 1 may share a part; true and given labels.

    Shares of the samples get any other class, or the other class of the pair.
    """
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(classes, 8, generator=g).double()
    if pair:
        centre = F.normalize(centre[::2], dim=1).repeat_interleave(2, 0) * apart + pair * F.normalize(centre, dim=1)
    else:
        centre = F.normalize(centre, dim=1) * apart
    true = torch.randint(classes, (n,), generator=g)
    x = centre[true] + torch.randn(n, 8, generator=g)
    y, kind = true.clone(), torch.rand(n, generator=g)
    y = torch.where(kind < uniform, (true + torch.randint(1, classes, (n,), generator=g)) % classes, y)
    y = torch.where((kind >= uniform) & (kind < uniform + similar), true ^ 1, y)
    return -0.5 * torch.cdist(x, centre).square(), true, y


def test_probabilities_and_posterior_by_hand():
    scores = torch.tensor([[[1.0, 0.2, -0.5], [0.3, 0.1, 2.0]], [[0.0, -1.0, 0.5], [2.0, 1.0, 0.0]]]).double()
    y, prior = torch.tensor([1, 2]), torch.tensor([0.5, 0.3, 0.2]).double()
    table = torch.tensor([[0.0, 0.7, 0.3], [0.6, 0.0, 0.4], [0.9, 0.1, 0.0]]).double()
    for similar, given in ((0.1, table), (0.0, None)):
        noise = Noise((2.0, 0.5), 0.2, similar, given, prior.log(), 0.0, 2)
        p, label, q = noise.probabilities(scores), noise.label_probabilities(y), noise.posterior(scores, y)
        assert torch.equal(p, class_probabilities(scores, torch.tensor([2.0, 0.5]).double(), prior.log()))
        for i in range(2):
            power = [math.exp(2.0 * scores[0, i, c] + 0.5 * scores[1, i, c]) * float(prior[c]) for c in range(3)]
            said = [0.2 / 2 + similar * float(table[c, y[i]]) for c in range(3)]
            said[y[i]] = 1 - 0.2 - similar
            joint = [power[c] * said[c] for c in range(3)]
            assert p[i].tolist() == pytest.approx([v / sum(power) for v in power])
            assert label[i].tolist() == pytest.approx(said)
            assert q[i].tolist() == pytest.approx([j / sum(joint) for j in joint])


def test_labels_of_every_true_class_have_the_probability_1_in_all():
    p = torch.rand(50, 5, generator=torch.Generator().manual_seed(0)).double()
    table = nearest_table(p.T @ p)
    noise = Noise((1.0,), 0.2, 0.15, table, torch.zeros(5).double(), 0.0, 1)
    torch.testing.assert_close(noise.label_probabilities(torch.arange(5)).sum(0), torch.ones(5).double())


def test_true_frequencies_by_hand():
    """Of 100, 200 and 700 samples, 20 % get one of the two other labels at random."""
    true = torch.tensor([100.0, 200.0, 700.0]).double()
    given = 0.8 * true + 0.2 * (1000 - true) / 2
    torch.testing.assert_close(true_frequencies(given, 0.2), true / 1000)
    torch.testing.assert_close(true_frequencies(true, 0.0), true / 1000)
    few = torch.tensor([10.0, 190.0, 800.0]).double()  # 100 wrong labels were expected in every class at least
    raw = [MIN_PRIOR_SAMPLES, (190 - 0.1 * 1000) / 0.7, (800 - 0.1 * 1000) / 0.7]
    assert true_frequencies(few, 0.2).tolist() == pytest.approx([v / sum(raw) for v in raw])
    most = true_frequencies(given, 2 / 3)  # labels at random: nothing is divided by 0
    assert torch.isfinite(most).all() and float(most.sum()) == pytest.approx(1)


def test_similar_classes_by_hand():
    p = torch.softmax(3 * torch.randn(40, 10, generator=torch.Generator().manual_seed(0)), 1).double()
    found = nearest_table(p.T @ p)
    assert SIMILAR_CLASSES_COUNT == 7
    for a in range(10):
        both = {b: sum(float(row[a] * row[b]) for row in p) for b in range(10) if b != a}
        near = sorted(both, key=lambda b: -both[b])[:7]
        total = sum(both[b] for b in near)
        assert found[a].tolist() == pytest.approx([both[b] / total if b in near else 0.0 for b in range(10)])
    assert nearest_table(p[:, :2].T @ p[:, :2]).tolist() == [[0, pytest.approx(1)], [pytest.approx(1), 0]]


def gain_by_hand(tables, y, noise):
    """Log likelihood of the given labels minus that by their frequencies, one sample at a time."""
    classes, count = tables.shape[2], torch.bincount(y).tolist()
    total = 0.0
    for i, own in enumerate(y.tolist()):
        total_scores = sum(w * (t[i] - t[i].max()) for w, t in zip(noise.weight, tables)) + noise.prior
        power = [math.exp(v) for v in total_scores.tolist()]
        p = [v / sum(power) for v in power]
        given = (1 - noise.any - noise.similar) * p[own] + noise.any * (1 - p[own]) / (classes - 1)
        if noise.table is not None:
            given += noise.similar * sum(p[c] * float(noise.table[c, own]) for c in range(classes))
        total += math.log(given) - math.log(count[own] / len(y))
    return total / len(y)


@pytest.mark.parametrize("similar", [0.0, SIMILAR_ONLY_SHARE, None])
def test_the_likelihood_by_hand_and_no_likelier_values_nearby(similar):
    scores, _, y = world(300, uniform=0.1, similar=0.2, apart=2.5, pair=3.0)
    g = torch.Generator().manual_seed(1)
    tables = torch.stack([scores, scores + 3 * torch.randn(scores.shape, generator=g).double()])
    noise = _Likelihood(tables, y, torch.bincount(y)).maximum(similar)
    assert noise.fitted == 300 and noise.gain == pytest.approx(gain_by_hand(tables, y, noise), abs=1e-9)
    assert (noise.table is None) == (similar == 0)
    if similar is not None:
        assert noise.similar == pytest.approx(similar * (noise.any + noise.similar))
    expected = true_frequencies(torch.bincount(y).double(), noise.any).log()
    torch.testing.assert_close(noise.prior, expected)
    for factor in (0.8, 1.25):
        for m in range(2):
            weight = tuple(w * factor if m == i else w for i, w in enumerate(noise.weight))
            assert gain_by_hand(tables, y, noise._replace(weight=weight)) < noise.gain + 1e-5
        part = {"any": factor * noise.any, "similar": factor * noise.similar}
        prior = true_frequencies(torch.bincount(y).double(), part["any"]).log()
        assert gain_by_hand(tables, y, noise._replace(prior=prior, **part)) < noise.gain + 1e-5


def test_informative_is_more_than_the_gain_of_fitting():
    """Four parameters cost log(n) each."""
    noise = Noise((1.0, 1.0), 0.1, 0.0, None, torch.zeros(3), 0.0, 100)
    limit = 4 * math.log(100) / 100
    assert noise._replace(gain=limit * 1.001).informative and not noise._replace(gain=limit * 0.999).informative
    assert not noise._replace(gain=limit * 0.999, weight=(1.0, 1.0, 1.0)).informative
    assert noise._replace(gain=limit * 0.999, weight=(1.0,)).informative
    assert noise._replace(gain=limit * 0.999, fitted=200).informative  # log(200) / 200 is smaller


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.6])
def test_uniform_noise_is_recovered(share):
    """A share of 4000 samples has a standard error of 0.008 at most; 0.02 is more than two and a half of these."""
    scores, true, y = world(uniform=share)
    noise = fit_noise(StoredScores(scores[None]), y)
    assert noise.any + noise.similar == pytest.approx(float((true != y).double().mean()), abs=0.02)
    assert noise.similar < 0.02 and noise.informative
    assert noise.weight[0] == pytest.approx(1, abs=0.15)  # the scores are exact log densities


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("apart", [2.5, 5.0])
@pytest.mark.parametrize("pair", [2.0, 3.0])
def test_noise_between_similar_classes_is_recovered(share, apart, pair):
    """Pairs of which part cannot be told apart: the fit must start with sharp scores too, or blunt scores explain the noise."""
    scores, true, y = world(similar=share, apart=apart, pair=pair)
    noise = fit_noise(StoredScores(scores[None]), y)
    assert noise.any + noise.similar == pytest.approx(float((true != y).double().mean()), abs=0.04)
    assert noise.similar > 4 * noise.any


@pytest.mark.parametrize("pair", [2.0, 3.0])
def test_uniform_noise_and_noise_between_similar_classes_are_told_apart(pair):
    scores, _, y = world(uniform=0.1, similar=0.2, apart=2.5, pair=pair)
    noise = fit_noise(StoredScores(scores[None]), y)
    assert noise.any == pytest.approx(0.1, abs=0.04) and noise.similar == pytest.approx(0.2, abs=0.04)


def test_confusable_classes_without_noise_have_none():
    scores, _, y = world(apart=2.5, pair=2.0)
    noise = fit_noise(StoredScores(scores[None]), y)
    assert noise.any + noise.similar < 0.02


def test_the_better_table_has_the_weight():
    scores, _, y = world(uniform=0.2)
    junk = torch.randn(scores.shape, generator=torch.Generator().manual_seed(5)).double()
    noise = fit_noise(StoredScores(torch.stack([junk, scores, 3 * scores + 7])), y)
    assert noise.weight[0] < 0.1 and noise.weight[1] + 3 * noise.weight[2] == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_the_scores_do_not_explain_are_not_informative(seed):
    g = torch.Generator().manual_seed(seed)
    table, y = torch.randn(1, 600, 6, generator=g), torch.randint(0, 6, (600,), generator=g)
    assert not fit_noise(StoredScores(table), y).informative
    scores, _, y = world(1000, classes=10, uniform=0.9, seed=seed)  # every given label is as frequent in every class
    assert not fit_noise(StoredScores(scores[None]), y).informative


def test_labels_that_are_all_exchanged_are_not_informative():
    """The model has no more than 1 - 1 / C wrong labels: two classes the wrong way round cannot be told from random ones."""
    y = torch.arange(200) % 2
    table = 5 * F.one_hot(1 - y, 2).double()[None]
    noise = fit_noise(StoredScores(table), y)
    assert not noise.informative and noise.any <= 0.5


def test_similar_classes_are_modelled_only_where_they_can_be(monkeypatch):
    scores, _, y = world(2000, similar=0.2, apart=2.5, pair=3.0)
    each = StoredScores(scores[None])
    assert fit_noise(each, y).similar > 0.1
    assert fit_noise(each, y, similar=False).table is None
    few = torch.arange(label_noise.MIN_SIMILARITY_SAMPLES * 8 - 1)
    assert fit_noise(StoredScores(scores[None, few]), y[few]).table is None
    for name, value in (("MAX_SIMILARITY_CLASSES", 7), ("MAX_SIMILAR_LOSS", -9.0), ("MIN_SIMILAR_GAIN", 9.0)):
        with monkeypatch.context() as patch:
            patch.setattr(label_noise, name, value)
            assert fit_noise(each, y).table is None, name


def test_many_samples_are_fitted_on_some():
    scores, true, y = world(uniform=0.3)
    some = fit_noise(StoredScores(scores[None]), y, most=1000 * 8, seed=3)
    rows = torch.randperm(4000, generator=torch.Generator().manual_seed(3))[:1000].sort().values
    by_hand = _Likelihood(scores[None, rows], y[rows], torch.bincount(y)).maximum(0.0)
    assert some.fitted == 1000 and some.gain == pytest.approx(by_hand.gain) and some.any == pytest.approx(by_hand.any)
    assert some.any == pytest.approx(float((true != y).double().mean()), abs=0.045)  # three standard errors of 1000
    assert fit_noise(StoredScores(scores[None]), y, most=1).fitted == 16  # two per class at least


def test_blocks_of_stored_scores(monkeypatch):
    scores, _, y = world(230, uniform=0.2)
    each = StoredScores(scores[None])
    assert isinstance(each, Evidence) and each.classes == 8 and len(list(each.blocks())) == 1
    whole = fit_noise(each, y)
    monkeypatch.setattr(label_noise, "SCORE_BLOCK_SIZE", 8 * 50 + 7)
    assert [len(rows) for rows in each.blocks()] == [50] * 4 + [30]
    assert torch.equal(torch.cat(list(row_blocks(230, 8, y.device))), torch.arange(230))
    assert torch.equal(each.scores(torch.tensor([3, 1])), scores[None, [3, 1]])
    parts = fit_noise(each, y)
    assert parts.weight == whole.weight and parts[1:3] == whole[1:3] and parts.gain == whole.gain


def test_confused_classes_by_hand():
    """Class 0 has five samples with the label 1 and one with 2; one of six is usual, so only the five are systematic."""
    y = torch.tensor([0] * 6 + [1] * 5 + [2] + [1] * 6 + [2] * 6 + [3] * 6)
    true = torch.tensor([0] * 12 + [1] * 6 + [2] * 6 + [3] * 6)
    p = torch.nn.functional.one_hot(true, 4).double()
    fit = label_noise._Likelihood(torch.zeros(1, len(y), 4), y, torch.bincount(y))
    found = torch.zeros(4, 4, dtype=torch.float64)
    assert torch.equal(fit.confused_classes(p), found)  # 5 is less than three times the mean of 5, 1 and 0
    wide = torch.nn.functional.pad(p, (0, 8))
    fit = label_noise._Likelihood(torch.zeros(1, len(y), 12), y, torch.bincount(y, minlength=12))
    found = torch.zeros(12, 12, dtype=torch.float64)
    found[0, 1] = 1
    assert torch.equal(fit.confused_classes(wide), found)


@pytest.mark.parametrize(
    ("similar", "values"),
    [(0.0, [0.3, -0.2, -1.0]), (0.95, [0.1, 0.4, 0.5]), (None, [0.2, -1.0, 0.3, 0.7]), (0.0, [1.0, 1.0, 5.0])],
)
def test_the_gradient_of_the_likelihood_is_that_of_its_values(similar, values):
    scores, _, y = world(n=600, uniform=0.3, similar=0.1, pair=2.0)
    scores = torch.stack([scores, scores + torch.randn(scores.shape, generator=torch.Generator().manual_seed(1))])
    count = torch.bincount(y, minlength=8) + torch.tensor(
        [900, 0, 0, 0, 0, 0, 0, 0]
    )  # some classes at the smallest prior
    fit, point = _Likelihood(scores, y, count), np.array(values)
    p, any_share, similar_share, prior = fit._parts(point, similar)
    table = None if similar == 0 else nearest_table(p.T @ p)
    near = None if table is None else table.T[y]
    found, gradient = fit._objective(point, similar, near)
    noise = Noise((1.0,), any_share, similar_share, table, prior, 0.0, 0)
    by_hand = (p * noise.label_probabilities(y)).sum(1).log().mean()
    assert found == pytest.approx(-by_hand.item(), rel=1e-12)
    for i, slope in enumerate(gradient):
        step = 1e-5 * np.eye(len(point))[i]
        ends = [fit._objective(point + sign * step, similar, near)[0] for sign in (1, -1)]
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)  # rounding of float64: 1e-16 / 1e-5


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.8, 0.99])
def test_the_slope_of_the_log_frequencies_is_that_of_their_values(noise):
    count = torch.tensor([50.0, 30.0, 15.0, 5.0, 0.5], dtype=torch.float64)  # at high noise, rare classes are clamped
    ends = [true_frequencies(count, noise + step).log() for step in (1e-6, -1e-6)]
    expected = (ends[0] - ends[1]) / 2e-6
    torch.testing.assert_close(log_frequencies_slope(count, noise), expected, rtol=1e-6, atol=1e-6)


def test_posterior_of_label_sets_by_hand():
    """One label, p = 0.8, 20 % missing, 1 % superfluous: two lines of the formula of Bayes."""
    odds = float(np.log(0.8 / 0.2))
    noise = LabelSetNoise(*(torch.tensor(v) for v in ([[1.0]], [0.0], [0.2], [0.01], [0.0])), 1)
    found = noise.wrong(torch.full((1, 2, 1), odds), torch.tensor([[1.0], [0.0]]))
    assert found[0, 0].item() == pytest.approx(0.2 * 0.01 / (0.2 * 0.01 + 0.8 * 0.8), rel=1e-5)
    assert found[1, 0].item() == pytest.approx(0.8 * 0.2 / (0.8 * 0.2 + 0.2 * 0.99), rel=1e-5)


def test_the_gradient_for_label_sets_is_that_of_the_objective():
    g = torch.Generator().manual_seed(0)
    scores, has = torch.randn(2, 30, 3, generator=g), (torch.rand(30, 3, generator=g) < 0.4).float()
    fit = _LabelLikelihood(all_entries(scores, has), has.mean(0))
    point = fit.start.numpy() + 0.1 * np.random.default_rng(0).normal(size=len(fit.start))
    assert_gradient(fit.objective, point)


def discriminated(has, x, **settings):
    given = torch.tensor(has).float()
    with torch.no_grad():
        each, noise = discriminate_sets(torch.tensor(x), given, setting=(True, 0.5), **settings)
        wrong = torch.cat([noise.wrong(each.scores(rows).double(), given[rows]) for rows in each.blocks()])
    return noise, wrong.numpy()


def test_the_shares_of_missing_and_superfluous_labels_are_found():
    has = label_matrix(1500)
    noise, wrong = discriminated(noisy_matrix(has, 0.15, 0.03), features_of(has))
    assert 0.11 < noise.missing.mean() < 0.19 and 0.02 < noise.superfluous.mean() < 0.045
    assert bool(noise.informative.all())
    error = noisy_matrix(has, 0.15, 0.03) != has
    assert abs(wrong.sum() - error.sum()) < 0.15 * error.sum()


def test_labels_without_a_trace_in_the_features_are_not_informative():
    has = label_matrix(300)
    has[:, 5] = np.random.default_rng(5).random(300) < 0.4
    noise, _ = discriminated(has, features_of(label_matrix(300, seed=9)))
    assert not noise.informative[5]


def test_the_order_of_labels_changes_nothing():
    has, order = label_matrix(300), np.array([3, 0, 5, 1, 4, 2])
    noisy, x = noisy_matrix(has), features_of(has)
    _, first = discriminated(noisy, x)
    _, second = discriminated(noisy[:, order], x)
    # L-BFGS stops at a relative change of 1e-6 of the likelihood, at another point in another order
    np.testing.assert_allclose(first[:, order], second, atol=0.02)


def test_the_order_of_samples_changes_little():
    """Another order gives other folds, so probabilities differ a little, and the flagged states hardly."""
    has, order = label_matrix(600), np.random.default_rng(3).permutation(600)
    noisy, x = noisy_matrix(has), features_of(has)
    _, first = discriminated(noisy, x)
    _, second = discriminated(noisy[order], x[order])
    assert ((first[order] > 0.5) != (second > 0.5)).mean() < 0.01
