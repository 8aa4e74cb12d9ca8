"""Evidence for and against labels: each formula by hand, and planted wrong labels that must be found, no others."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from likewise.audit import label_quality_ensemble as evidence
from likewise.audit import label_scores
from likewise.audit.label_quality_ensemble import (
    fit_calibration,
    log_odds,
    regression,
    sample_rows,
    score_labels,
    standardise,
    suggest,
)
from likewise.audit.label_scores import ClassCentres, margins
from likewise.errors import LikewiseError
from likewise.numerics import label_noise
from likewise.numerics import lda as discriminant
from likewise.numerics.label_noise import Noise, StoredScores, discriminate, fit_noise


def some(classes=12, each=25, dim=24, wrong=0.1, apart=1.0, seed=0):
    """Gaussian classes in mixed order: features, given labels, true ones."""
    g = torch.Generator().manual_seed(seed)
    true = (torch.arange(classes * each) % classes)[torch.randperm(classes * each, generator=g)]
    x = apart * torch.randn(classes, dim, generator=g)[true] + torch.randn(len(true), dim, generator=g)
    y, bad = true.clone(), torch.randperm(len(true), generator=g)[: round(wrong * len(true))]
    y[bad] = (y[bad] + torch.randint(1, classes, (len(bad),), generator=g)) % classes
    return x, y, true


def average_precision(score, bad):
    from sklearn.metrics import average_precision_score

    return average_precision_score(bad.numpy(), -score.numpy())


def tables(n=7, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, classes, generator=g, dtype=torch.float64), torch.arange(n) % classes


def posterior_by_hand(scores, own, t, any, similar=0.0, table=None):
    power = [math.exp(t * float(s)) for s in scores]
    joint = []
    for c, value in enumerate(power):
        mixed = similar * float(table[c, own]) if table is not None else 0.0
        joint.append(value * (1 - any - similar if c == own else any / (len(power) - 1) + mixed))
    return [j / sum(joint) for j in joint]


def test_log_odds_by_hand():
    scores, y = tables()
    scores[0, 0], scores[1, 1] = 500.0, -500.0  # as sure as can be
    found = log_odds(StoredScores(scores), Noise(0.7, 0.2, 0.0, None), y)
    for i, own in enumerate(y.tolist()):
        p = min(max(posterior_by_hand(scores[i], own, 0.7, 0.2)[own], 1e-7), 1 - 1e-7)
        assert float(found[i]) == pytest.approx(math.log(p / (1 - p)), rel=1e-6)


def test_margins_by_hand():
    scores, y = tables()
    for i, found in enumerate(margins(StoredScores(scores), y)):
        rest = [float(s) for c, s in enumerate(scores[i]) if c != y[i]]
        assert float(found) == pytest.approx(float(scores[i, y[i]]) - max(rest))


def test_standard_by_hand():
    value = torch.tensor([1.0, 2.0, 4.0, 9.0, 1000.0]).double()
    among = torch.tensor([True, True, True, True, False])
    spread = math.sqrt(sum((v - 4) ** 2 for v in (1, 2, 4, 9)) / 4)
    assert standardise(value, among).tolist() == pytest.approx([(v - 2) / spread for v in value.tolist()])
    assert standardise(torch.full((3,), 7.0), among[:3]).tolist() == [0] * 3
    assert not standardise(value, among.new_zeros(5)).any()  # it counts among nobody


def followed():
    rng = np.random.default_rng(0)
    for spread, shift, noise in ((1, 0, 0.5), (5, 3, 2), (30, 10, 1), (0.1, -5, 0.1)):
        odds = (spread * rng.normal(size=200) + shift).clip(-16, 16)
        yield odds / max(spread, 1) + noise * rng.normal(size=200), odds
    value = rng.normal(size=200)
    yield value, np.where(value > -2, 16.0, -16.0)  # fully apart
    yield value, np.full(200, 16.0)
    yield value, 1 - 2 * value  # falls where it should rise: the slope stays above 0
    yield rng.standard_cauchy(200), 5 * rng.normal(size=200)


@pytest.mark.parity
@pytest.mark.parametrize(("value", "odds"), followed())
def test_the_score_follows_the_log_odds_as_scipy_would(value, odds):
    from scipy.optimize import minimize

    p = 1 / (1 + np.exp(-odds))

    def entropy(weight):
        line = weight[0] * value + weight[1]
        return np.mean(np.logaddexp(0, line) - p * line)

    a, b = fit_calibration(torch.tensor(value), torch.tensor(odds))
    ways = {"method": "L-BFGS-B", "bounds": [(1e-3, None), (None, None)], "options": {"ftol": 1e-14, "maxiter": 5000}}
    theirs = min(minimize(entropy, start, **ways).fun for start in ([1.0, 0.0], [a, b]))
    assert a >= 1e-3 and entropy([a, b]) <= theirs + 1e-8


def test_a_value_that_never_varies_can_be_followed():
    odds = torch.tensor([2.0, 0.0, -1.0, 3.0]).double()
    _, b = fit_calibration(torch.zeros(4).double(), odds)
    assert 1 / (1 + math.exp(-b)) == pytest.approx(float(torch.sigmoid(odds).mean()))


def test_suggestions_by_hand():
    (first, y), (second, _) = tables(), tables(seed=1)
    table = torch.rand(4, 4, generator=torch.Generator().manual_seed(0)).double().fill_diagonal_(0)
    members = {
        "a": (StoredScores(first), Noise(0.7, 0.2, 0.0, None)),
        "b": (StoredScores(second), Noise(1.3, 0.1, 0.2, table)),
    }
    label, sure, ahead = suggest(members, y)
    for i, own in enumerate(y.tolist()):
        a = posterior_by_hand(first[i], own, 0.7, 0.2)
        b = posterior_by_hand(second[i], own, 1.3, 0.1, 0.2, table)
        power = {c: math.exp((math.log(a[c]) + math.log(b[c])) / 2) for c in range(4) if c != own}
        best, second_best = sorted((p / sum(power.values()) for p in power.values()), reverse=True)[:2]
        assert int(label[i]) == max(power, key=power.get)
        assert float(sure[i]) == pytest.approx(best) and float(ahead[i]) == pytest.approx(best - second_best)


def test_of_two_classes_the_other_one_is_suggested_for_sure():
    scores, y = tables(classes=2)
    label, sure, ahead = suggest({"a": (StoredScores(scores), Noise(1.0, 0.2, 0.0, None))}, y)
    assert torch.equal(label, 1 - y) and (sure == 1).all() and (ahead == 1).all()


@pytest.mark.parity
def test_the_regression_is_scikit_learns_without_the_fold():
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold

    x, y, _ = some(4, 10, 5)
    sample_weight = torch.rand(40, generator=torch.Generator().manual_seed(0)).double()
    found = regression(x, y, sample_weight, seed=3)
    numbers = ((x - x.mean(0)) / x.std()).double().numpy()
    for fit, ask in KFold(5, shuffle=True, random_state=3).split(numbers):
        fit = [i for i in fit if sample_weight[i] > 0.02]
        model = LogisticRegression(C=0.003, max_iter=200, tol=1e-9)
        model.fit(numbers[fit], y.numpy()[fit], sample_weight=sample_weight.numpy()[fit])
        np.testing.assert_allclose(found[ask], model.predict_log_proba(numbers[ask]), rtol=0, atol=1e-5)


def test_the_regression_does_without_what_it_never_saw():
    x, y = some(2, 10, 3)[0], torch.tensor([0] * 19 + [2])
    found = regression(x, y, torch.ones(20).double())
    assert found.shape == (20, 3) and found[:, 1].tolist() == pytest.approx([math.log(1e-7)] * 20)
    assert found[19].tolist() == pytest.approx([0, math.log(1e-7), math.log(1e-7)])
    assert regression(x, y, torch.zeros(20).double()).unique().tolist() == pytest.approx([math.log(1e-7)])


def test_the_score_by_hand():
    """All the steps, one after another; embeddings and features differ."""
    x, y, _ = some(6, 20, 8, apart=0.8)
    z = x[:, :5] + 0.3
    found = score_labels(z, y, x, seed=2)
    by = torch.arange(len(y))
    centres = ClassCentres(F.normalize(x, dim=1), y, 6)
    odds = [
        log_odds(centres, fit_noise(centres, y, evidence.SHARPNESS_GRID, by=by, proven=True), y),
        log_odds(*discriminate(x, y, 6, seed=2, by=by, proven=True), y),
    ]
    says = [margins(ClassCentres(F.normalize(z, dim=1), y, 6), y), *odds]
    says.append(margins(StoredScores(regression(x, y, torch.sigmoid(sum(odds)), 2)), y))
    mean = sum((value - value.median()) / value.std(correction=0) for value in says) / 4
    a, b = fit_calibration(mean, sum(odds) / 2)
    for (name, value), wanted in zip(found.single.items(), says):
        np.testing.assert_allclose(value, wanted, rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(found.score, torch.sigmoid(a * mean + b), rtol=1e-6)
    assert list(found.single) == ["centre", "centres", "discriminants", "regression"]


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_wrong_labels_are_found_counted_and_named(seed):
    """Bounds with room: over five seeds, average precisions were 0.999 and more, all suggestions right, 97 % and more flagged."""
    x, y, true = some(apart=1.3, seed=seed)
    bad = y != true
    found = score_labels(F.normalize(x, dim=1), y, x, seed)
    assert average_precision(found.score, bad) > 0.98
    assert float((1 - found.score).sum()) == pytest.approx(int(bad.sum()), rel=0.3)
    assert found.any + found.similar == pytest.approx(0.1, abs=0.03)
    assert (found.suggested == true)[bad].double().mean() > 0.95 and (found.suggested != y).all()
    assert (found.score < 0.5)[bad].double().mean() > 0.9 and (found.score < 0.5)[~bad].double().mean() < 0.01


@pytest.mark.parametrize(("each", "apart", "least"), [(2, 1.5, 0.75), (5, 1.0, 0.9)])
def test_small_classes(each, apart, least):
    """Over five seeds, average precisions were 0.84 and more for pairs, 0.98 and more for fives; chance is 0.1."""
    x, y, true = some(60, each, 32, apart=apart)
    bad = y != true
    found = score_labels(x, y)
    assert list(found.single) == ["centre", "centres"] and found.similar == 0
    flagged = found.score < 0.5
    assert flagged[bad].double().mean() > 0.6 and flagged[~bad].double().mean() < 0.05
    assert average_precision(found.score, bad) > least and found.any == pytest.approx(0.1, abs=0.04)


def test_small_classes_beside_large_ones_are_judged_by_centres_alone(monkeypatch):
    """What discriminants and a regression say of them changes nothing."""
    x, y, _ = some(8, 20, 16)
    small = y < 2
    drop = torch.cat([(y == c).nonzero()[6:, 0] for c in (0, 1)])
    keep = torch.tensor([i for i in range(len(y)) if i not in set(drop.tolist())])
    x, y, small = x[keep], y[keep], small[keep]
    plain, real = score_labels(x, y), evidence.log_odds
    wild = lambda each, noise, y: real(each, noise, y) - 9 * small * isinstance(each, discriminant.Discriminant)  # noqa: E731
    monkeypatch.setattr(evidence, "log_odds", wild)
    assert torch.allclose(score_labels(x, y).score, plain.score, atol=1e-12)


@pytest.mark.parametrize(("classes", "each"), [(12, 25), (60, 5), (2, 40)])
def test_clean_labels_are_left_alone(classes, each):
    x, y, _ = some(classes, each, 32, wrong=0, apart=1.2)
    found = score_labels(x, y)
    assert (found.score < 0.5).double().mean() < 0.01 and float((1 - found.score).sum()) < 0.02 * len(y)


@pytest.mark.parametrize(("classes", "each"), [(20, 20), (100, 5), (200, 2), (3, 20)])
def test_features_that_say_nothing_accuse_nobody(classes, each):
    g = torch.Generator().manual_seed(0)
    y, x = torch.arange(classes * each) % classes, torch.randn(classes * each, 16, generator=g)
    found = score_labels(x, y)
    assert (found.score > 0.99).all() and found.any == found.similar == 0


def test_samples_alone_get_the_median_and_decide_nothing():
    x, y, true = some(40, 5, 24)
    g = torch.Generator().manual_seed(5)
    alone = torch.randn(150, 24, generator=g) * 1.4
    before, after = score_labels(x, y), score_labels(torch.cat([x, alone]), torch.cat([y, 40 + torch.arange(150)]))
    assert after.score[200:].unique().tolist() == [float(after.score[:200].median())]
    assert after.any == pytest.approx(before.any, abs=0.03)
    assert average_precision(after.score[:200], y != true) > 0.8
    assert score_labels(x[:9], torch.arange(9)).score.tolist() == [0.5] * 9


def cases():
    g = torch.Generator().manual_seed(0)
    y, x = torch.arange(60) % 3, torch.randn(60, 5, generator=g)
    return {
        "two samples": (x[:2], y[:2]),
        "three samples": (x[:3], torch.tensor([0, 1, 1])),
        "all but one of a class": (x[:21], torch.tensor([0] * 20 + [1])),
        "one class and samples alone": (x[:40], torch.tensor([0] * 20 + list(range(1, 21)))),
        "identical": (x[:1].repeat(60, 1), y),
        "zeros": (torch.zeros(60, 5), y),
        "features that never vary": (torch.cat([x, torch.full((60, 3), 0.1)], 1), y),
        "large numbers": (1e14 * x, y),
        "half precision": (x.half(), y),
        "double precision": (x.double(), y),
        "more features than samples": (torch.randn(40, 200, generator=g), y[:40] % 2),
        "one feature": (x[:, :1], y),
        "fully apart": (0.001 * x + 10 * F.one_hot(y, 5), y),
    }


@pytest.mark.parametrize("name", cases())
def test_every_number_is_a_number(name):
    x, y = cases()[name]
    found = score_labels(x, y)
    for value in (found.score, found.confidence, found.margin, *found.single.values()):
        assert value.isfinite().all()
    for value in (found.score, found.confidence, found.margin):
        assert ((value >= 0) & (value <= 1)).all()
    assert (found.suggested != y).all() and torch.isin(found.suggested, y).all()
    assert (found.score < 0.5).double().mean() < 0.2


def test_labels_may_be_any_whole_numbers():
    x, y, _ = some(5, 16, 8)
    plain, gaps = score_labels(x, y), score_labels(x, (7 * y - 3).int())
    assert torch.equal(plain.score, gaps.score) and torch.equal(7 * plain.suggested - 3, gaps.suggested.long())
    assert gaps.suggested.dtype == torch.int32


def test_the_score_rises_with_what_the_members_say():
    x, y, _ = some(8, 20, 16, apart=0.6)
    found = score_labels(x, y)
    mean = sum(standardise(value, y >= 0) for value in found.single.values())
    assert (found.score[mean.argsort()].diff() >= 0).all()


def test_the_seed_decides_and_nothing_else_is_drawn():
    x, y, _ = some(6, 20, 8, apart=0.7)
    before = torch.get_rng_state()
    first, second, third = (score_labels(x, y, seed=seed).score for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, second) and not torch.equal(first, third)


def test_the_block_size_changes_nothing(monkeypatch):
    x, y, _ = some(6, 20, 8, apart=0.7)
    whole = score_labels(x, y)
    for module in (discriminant, label_scores):
        monkeypatch.setattr(module, "SCORE_BLOCK_SIZE", 7 * 6)
    assert len(list(StoredScores(torch.zeros(15, 6)).blocks())) == 3
    parts = score_labels(x, y)
    # Rounding in float32 reaches log odds as about 2e-6, and the regression ends within 1e-5 of its optimum.
    torch.testing.assert_close(parts.score, whole.score, rtol=0, atol=2e-5)
    assert torch.equal(whole.suggested, parts.suggested)


def test_of_many_scores_shares_are_fitted_by_a_draw(monkeypatch):
    x, y, true = some(20, 40, 24)
    shapes, real = [], label_noise.fit_at_sharpness
    monkeypatch.setattr(evidence, "MAX_STORED_SCORES", 300 * 20)
    monkeypatch.setattr(
        label_noise, "fit_at_sharpness", lambda each, y, *rest: [shapes.append(len(y)), real(each, y, *rest)][1]
    )
    found = score_labels(x, y)
    assert set(shapes) == {300} and "regression" not in found.single  # its table would not fit
    assert average_precision(found.score, y != true) > 0.97 and found.any + found.similar == pytest.approx(
        0.1, abs=0.05
    )


def test_rows_are_drawn_among_those_asked_for():
    among = torch.arange(50) % 2 == 0
    assert torch.equal(sample_rows(among, 25, 0), torch.arange(0, 50, 2))
    some_rows = sample_rows(among, 10, 0)
    assert len(some_rows.unique()) == 10 and among[some_rows].all() and torch.equal(some_rows, some_rows.sort().values)
    assert torch.equal(some_rows, sample_rows(among, 10, 0)) and not torch.equal(some_rows, sample_rows(among, 10, 1))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            lambda: score_labels(torch.randn(4, 2), torch.full((4,), 8)),
            "score_labels: labels must have two .*got only class 8",
        ),
        (lambda: score_labels(torch.randn(4, 2), torch.zeros(4)), "score_labels: .*one integer per row"),
        (lambda: score_labels(torch.randn(4, 2), torch.arange(3)), "score_labels: .*one integer per row"),
        (
            lambda: score_labels(torch.randn(1, 2), torch.arange(1)),
            "score_labels: z must be a table of two rows or more",
        ),
        (
            lambda: score_labels(torch.randn(4, 2), torch.arange(4), torch.randn(3, 2)),
            r"score_labels: .*got z of shape \(3, 2\)",
        ),
        (lambda: score_labels(torch.tensor([[1.0], [torch.nan]]), torch.arange(2)), "score_labels: .*first: row 1"),
        (
            lambda: score_labels(torch.ones(2, 1), torch.arange(2), torch.tensor([[1.0], [1e20]])),
            r"below 1e\+15.*first: row 1",
        ),
    ],
)
def test_bad_input_is_named(work, message, unchecked):
    with pytest.raises(LikewiseError, match=message):
        work()
