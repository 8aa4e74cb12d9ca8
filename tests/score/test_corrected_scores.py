"""Estimates of corrected scores: clipped intervals, reasons for metrics without one, and reviewed queries by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import t

from likewise.score.corrected_scores import as_estimate, by_review, collect, split_metrics, why_not_imputed
from likewise.score.fixed_ranking import FixedRanking


def test_intervals_stay_within_zero_and_one():
    assert as_estimate(0.5, 0.1) == pytest.approx((0.5, 0.304, 0.696))
    assert as_estimate(1.2, 0.15) == pytest.approx((1, 0.906, 1))


def test_metrics_without_an_estimate_have_a_reason():
    assert split_metrics(["R@1", "NMI", "mAP"])[0] == ["R@1"]
    found, unknown = collect({"R@1": (0.5, 0.1), "RP": (0.5, 0.3), "P@2": (math.nan, 0.1)}, {"NMI": "why"})
    assert found.keys() == {"R@1"} and unknown.keys() == {"RP", "P@2", "NMI"}


def test_class_sizes_that_are_not_imputed():
    assert "fewer than 15" in why_not_imputed(torch.tensor([3, 4, 90]))
    assert "largest" in why_not_imputed(torch.tensor([2, 2, 20, 20, 900]))
    assert why_not_imputed(torch.tensor([15, 20, 40])) == ""


def test_reviewed_queries_by_hand():
    n, rng = 100, np.random.default_rng(0)
    true, given = rng.integers(0, 2, n), rng.integers(0, 2, n)
    row = torch.as_tensor((np.arange(n)[:, None] + 1) % n)
    ranking = FixedRanking(torch.arange(n), row, torch.ones(n, dtype=torch.bool))
    label = torch.full((n,), -1)
    label[:51] = torch.as_tensor(true[:51])  # queries 0 to 49 have their neighbour, query 50 lacks it
    found, unknown = by_review(label, torch.arange(60), torch.as_tensor(given), ranking, ["R@1", "RP"])
    y, f = (np.array([float(a[i] == a[(i + 1) % n]) for i in range(n)]) for a in (true, given))
    cov = np.cov(y[:50], f[:50])
    weight = np.clip(cov[0, 1] / cov[1, 1], 0, 1)
    rest = y[:50] - weight * f[:50]
    variance = 0.5 * (((rest - rest.mean()) ** 2).sum() + 2) / 51 / 50
    assert found["R@1"].value == pytest.approx(rest.mean() + weight * f.mean())
    assert found["R@1"].high - found["R@1"].value == pytest.approx(t.ppf(0.975, 49) * math.sqrt(variance))
    assert unknown.keys() == {"RP"}
