"""Metrics by hand, one query at a time, and against pytorch-metric-learning."""

import math

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN

from likewise.metrics.ranking import largest_k, metric
from likewise.search import rank
from likewise.types import LikewiseError


def data(n=120, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 12, (n,), generator=g) ** 2  # uneven classes
    y[0] = 999  # alone in its class
    z = torch.nn.functional.normalize(
        torch.randn(200, 6, generator=g)[y.clamp_max(199)] + torch.randn(n, 6, generator=g), dim=1
    )
    return z, y


def by_hand(z, y, name):
    values = []
    for i in range(len(y)):
        order = sorted((j for j in range(len(y)) if j != i), key=lambda j: (-float(z[i].double() @ z[j].double()), j))
        hits = [int(y[j] == y[i]) for j in order]
        r = sum(hits)
        if r == 0:
            values.append(math.nan)
        elif name.startswith("R@"):
            values.append(float(any(hits[: int(name[2:])])))
        elif name.startswith("P@"):
            values.append(sum(hits[: int(name[2:])]) / int(name[2:]))
        elif name == "RP":
            values.append(sum(hits[:r]) / r)
        else:
            values.append(sum(sum(hits[: k + 1]) / (k + 1) for k in range(r) if hits[k]) / r)
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("name", ["R@1", "R@4", "R@30", "P@1", "P@5", "RP", "MAP@R"])
def test_by_hand(name):
    z, y = data()
    torch.testing.assert_close(metric(name)(rank(z, y, k=30)), by_hand(z, y, name), equal_nan=True)


@pytest.mark.parity
def test_same_means_as_pytorch_metric_learning():
    z, y = data(200)
    peer = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
        k="max_bin_count", knn_func=CustomKNN(CosineSimilarity()),
    ).get_accuracy(z, y)  # fmt: skip
    found = rank(z, y, k=1)
    for name, other in (("P@1", "precision_at_1"), ("RP", "r_precision"), ("MAP@R", "mean_average_precision_at_r")):
        assert math.isclose(metric(name)(found).nanmean().item(), peer[other], abs_tol=1e-6)


def test_unknown_names_and_shallow_rankings():
    with pytest.raises(LikewiseError, match="there is no 'R@0'.*R@k, P@k, RP, MAP@R"):
        metric("R@0")
    z, y = data(20)
    with pytest.raises(LikewiseError, match="rank 25 is wanted, but the ranking ends at"):
        metric("R@25")(rank(z, y, k=25))
    assert largest_k(["R@1", "P@8", "MAP@R"]) == 8 and largest_k(["RP"]) == 1
