"""Correlation coefficients and their intervals: by hand, and beside scipy."""

import math

import numpy as np
import pytest
from likewise.errors import LikewiseError
from scipy import stats

from likewise.score.significance import correlate


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
    with pytest.raises(LikewiseError, match="same length, got 1 and 2"):
        correlate([1], [1, 2])
