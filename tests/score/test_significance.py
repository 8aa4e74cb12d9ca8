"""Tests of pairs, Holm's correction, agreement, correlation: by hand, against scipy, and right as often as they say."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import stdtr, stdtrit

from likewise.score.significance import agreement, compare_pairs, correlate, holm


def pair_by_hand(total, size, a, b):
    """Mean, variance and degrees of freedom of one pair, class by class and seed by seed."""
    classes, seeds, methods = total.shape
    n = sum(size)
    value = [[sum(total[c, s, m] for c in range(classes)) / n for m in range(methods)] for s in range(seeds)]
    each = [value[s][b] - value[s][a] for s in range(seeds)]
    mean = sum(each) / seeds
    own = sum((d - mean) ** 2 for d in each) / (seeds - 1)
    grand = sum(map(sum, value)) / (seeds * methods)
    of_method = [sum(row[m] for row in value) / seeds for m in range(methods)]
    left = [[(row[m] - sum(row) / methods - of_method[m] + grand) ** 2 for m in range(methods)] for row in value]
    q = [sum(row[m] for row in left) for m in range(methods)]
    residual = sum(q) / ((seeds - 1) * (methods - 1))
    moved = [
        [(total[c, s, b] - total[c, s, a] - size[c] * each[s]) / (n - size[c]) for s in range(seeds)]
        for c in range(classes)
    ]
    centre, factor = [sum(row) / seeds for row in moved], (classes - 1) / classes
    both = factor * sum((v - m) ** 2 for row, m in zip(moved, centre) for v in row) / (seeds * (seeds - 1))
    of_seeds, of_classes = max(max(own, 2 * residual) / seeds, both), max(factor * sum(m * m for m in centre), both)
    seed_freedom = (seeds - 1) * max(1, sum(q) ** 2 / sum(v * v for v in q) * (methods - 1) / methods)
    class_freedom = sum(k**2 for k in size) ** 2 / sum(k**4 for k in size) - 1
    variance = of_seeds + of_classes - both
    return mean, variance, max(1, variance / (of_seeds / seed_freedom + of_classes / class_freedom))


def made(classes=7, seeds=3, methods=4, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.integers(2, 9, classes)
    level = 0.6 + 0.2 * rng.normal(size=(classes, 1, 1)) + 0.05 * rng.normal(size=(classes, 1, methods))
    level = level + 0.05 * rng.normal(size=(1, seeds, methods)) + 0.05 * rng.normal(size=(classes, seeds, methods))
    return size[:, None, None] * level, size


def test_pairs_by_hand():
    total, size = made()
    found = compare_pairs(total, size)
    for k, (a, b) in enumerate(itertools.combinations(range(4), 2)):
        mean, variance, freedom = pair_by_hand(total, size.tolist(), a, b)
        reach = stdtrit(freedom, 0.975) * variance**0.5
        assert (found.mean[k], found.low[k], found.high[k]) == pytest.approx((mean, mean - reach, mean + reach))
        assert found.p[k] == pytest.approx(2 * stdtr(freedom, -abs(mean) / variance**0.5)) and found.seeds[k] == 3


@pytest.mark.parity
def test_with_much_training_noise_it_is_the_t_test_over_seeds():
    """Two methods, classes that do not differ: only the seeds vary, and the test is Student's for pairs."""
    from scipy import stats

    value = np.random.default_rng(0).normal(0, 1, (6, 2))
    size = np.full(200, 5)
    total = np.broadcast_to(5 * value, (200, 6, 2)).copy()
    found = compare_pairs(total, size)
    theirs = stats.ttest_rel(value[:, 1], value[:, 0])
    assert found.p[0] == pytest.approx(theirs.pvalue) and (found.low[0], found.high[0]) == pytest.approx(
        tuple(theirs.confidence_interval())
    )


@pytest.mark.parity
def test_without_training_noise_it_is_the_t_test_over_classes():
    from scipy import stats

    gain = np.random.default_rng(0).normal(0.3, 1, 30)
    total = np.stack([np.zeros((30, 4)), np.broadcast_to(3 * gain[:, None], (30, 4))], 2)
    found = compare_pairs(total, np.full(30, 3))
    theirs = stats.ttest_1samp(gain, 0)
    assert found.p[0] == pytest.approx(theirs.pvalue)
    assert (found.low[0], found.high[0]) == pytest.approx(tuple(theirs.confidence_interval()))


def test_many_contests_at_once_are_what_each_is_alone():
    parts = [made(seed=seed) for seed in range(3)]
    whole = compare_pairs(*map(np.stack, zip(*parts)))
    for k, part in enumerate(parts):
        for name, value in compare_pairs(*part)._asdict().items():
            assert np.allclose(getattr(whole, name)[k] if name != "seeds" else whole.seeds, value, rtol=1e-12)


def test_seeds_that_both_have_count():
    total, size = made(seeds=5, methods=3)
    total[:, 3:, 1] = np.nan
    total[:, 0, 2] = np.nan
    found = compare_pairs(total, size)
    assert found.seeds.tolist() == [3, 4, 2]
    value = total.sum(0) / size.sum()
    assert found.mean == pytest.approx([np.nanmean(value[:, b] - value[:, a]) for a, b in ((0, 1), (0, 2), (1, 2))])
    assert np.isfinite(found.p).all()
    total[:, 1, 1] = np.nan  # the third pair has one seed left
    found = compare_pairs(total, size)
    assert (
        math.isnan(found.p[2])
        and math.isnan(found.low[2])
        and found.mean[2] == pytest.approx(value[2, 2] - value[2, 1])
    )


def test_where_nothing_varies_there_is_no_test():
    size = np.full(5, 2)
    total = np.broadcast_to([1.0, 1.0, 1.4], (5, 3, 3))
    found = compare_pairs(total, size)
    assert found.p[0] == 1 and np.isnan(found.p[1:]).all()  # equal ones are equal; a constant gain has no spread
    assert np.isnan(compare_pairs(total[:, :1], size).p).all() and np.isnan(compare_pairs(total[:1], size[:1]).p).all()
    assert compare_pairs(total[..., :1], size).p.shape == (0,)


def test_equal_methods_are_rarely_told_apart_and_better_ones_are():
    """500 contests of 4 methods whose trainings vary, on classes that suit one method or another."""
    rng, size = np.random.default_rng(1), np.full((500, 30), 20)
    level = rng.normal(0.6, 0.1, (500, 30, 1, 1)) + 0.04 * rng.normal(size=(500, 30, 1, 4))
    level = level + 0.01 * np.array([1, 1, 1, 5]) * rng.normal(size=(500, 1, 5, 4))
    total = size[:, :, None, None] * (level + 0.1 * rng.normal(size=(500, 30, 5, 4)))
    told = np.mean([(holm(p) < 0.05).any() for p in compare_pairs(total, size).p])
    assert told < 0.05 + 3 * (0.05 * 0.95 / 500) ** 0.5
    total[..., 0] += 20 * 0.2
    assert np.mean([(holm(p)[:2] < 0.05).all() for p in compare_pairs(total, size).p]) > 0.8


def test_holm_by_hand():
    p = [
        0.01,
        0.04,
        math.nan,
        0.03,
        0.005,
    ]  # of four: 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 * 1 is not below the last
    assert holm(np.array(p)) == pytest.approx([0.03, 0.06, math.nan, 0.06, 0.02], nan_ok=True)
    assert holm(np.array([0.5, 0.9])).tolist() == [1, 1] and len(holm(np.array([]))) == 0


def test_holm_keeps_the_error_of_the_family():
    """20 tests in which nothing is to be found, and dependent ones: any false alarm in at most 5 % of 2,000 families."""
    from scipy.special import ndtr

    rng = np.random.default_rng(0)
    shared = rng.normal(size=(2000, 1))
    for mix in (0, 0.7):
        p = 2 * ndtr(-np.abs(mix * shared + (1 - mix**2) ** 0.5 * rng.normal(size=(2000, 20))))
        assert (p < 0.05).any(1).mean() > 0.2
        assert np.mean([(holm(row) < 0.05).any() for row in p]) < 0.05 + 3 * (0.05 * 0.95 / 2000) ** 0.5


def test_agreement_by_hand():
    ours, printed = [1.0, 2.0, 3.0, 4.0, math.nan, 2.5], [10.0, 30.0, 20.0, 30.0, 5.0, 40.0]
    kept = [(a, b) for a, b in zip(ours, printed) if not math.isnan(a)]
    signs = [(np.sign(a - c), np.sign(b - d)) for (a, b), (c, d) in itertools.combinations(kept, 2)]
    below = math.sqrt(sum(a != 0 for a, _ in signs) * sum(b != 0 for _, b in signs))
    found = agreement(ours, printed)
    assert found.tau == pytest.approx(sum(a * b for a, b in signs) / below) and (found.n, found.note) == (5, "")


def test_few_methods_cannot_agree_much():
    found = agreement([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert found.tau == pytest.approx(1) and found.p > 0.3 and found.note.startswith("3 methods are too few")
    assert math.isnan(agreement([1.0], [2.0]).tau)
    assert agreement([1.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]).note == "all values of one side are the same"


def test_five_points_by_hand():
    found = correlate([1, 2, 3, 4, 5], [1, 2, 3, 5, 4])
    # squares of ranks' differences: 0 + 0 + 0 + 1 + 1 = 2; 1 - 6 * 2 / (5 * 24) = 0.9, and the values are the ranks
    assert (found.n, found.pearson.value, found.spearman.value) == (5, pytest.approx(0.9), pytest.approx(0.9))
    centre, half = math.atanh(0.9), 1.959964 / 2**0.5
    assert found.pearson[1:] == pytest.approx((math.tanh(centre - half), math.tanh(centre + half)), abs=1e-6)
    half *= (1 + 0.81 / 2) ** 0.5
    assert found.spearman[1:] == pytest.approx((math.tanh(centre - half), math.tanh(centre + half)), abs=1e-6)


@pytest.mark.parity
def test_scipy_finds_the_same():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = np.round(0.5 * x + rng.normal(size=30), 1)  # with ties
    found, theirs = correlate(x.tolist(), y.tolist()), stats.pearsonr(x, y)
    assert found.pearson == pytest.approx((theirs.statistic, *theirs.confidence_interval()), abs=1e-9)
    assert found.spearman.value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_what_has_no_interval_or_no_coefficient():
    line = correlate([1, 2, 3, 4], [2, 4, 6, 8])
    assert line.pearson.value == pytest.approx(1) and math.isnan(line.pearson.low) and math.isnan(line.spearman.high)
    few = correlate([1, 2, 3], [1, 3, 2])
    assert few.pearson.value == pytest.approx(0.5) and math.isnan(few.pearson.low)
    assert math.isnan(correlate([1, 1, 1, 1], [1, 2, 3, 4]).spearman.value)
    gap = correlate([1, 2, math.nan, 3], [1, 3, 9, 2])
    assert gap.n == 3 and gap.pearson.value == pytest.approx(0.5)
    assert correlate([], []).n == 0
