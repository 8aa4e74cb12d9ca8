"""Scores under known noise: expected values over all given labels, one pattern of labels at a time."""

from itertools import product

import numpy as np
import pytest
import torch
from likewise.metrics import metric
from likewise.noise import Uniform
from likewise.types import LikewiseError

from likewise.core.retrieval.ranking import rank
from likewise.labels.noise_inversion import inverse_transition, invert_scores, invertible

TRANSITION = np.array([[0.8, 0.2], [0.3, 0.7]])
QUERIES = ((0, (1, 2, 3)), (1, (0, 3, 2)), (2, (3, 0, 1)))
"""Queries and their neighbours among four samples; 100 more gallery rows of each class, with known labels, are no neighbours."""

TRUE = (0, 0, 1, 1)
PADDING_ROWS = 100


def invert(given, names):
    """The four labels are as given; the padding has the weights of its classes whatever the noise: its sum is what matters."""
    y = torch.tensor([*given, *([0, 1] * PADDING_ROWS)])
    query = torch.tensor([q for q, _ in QUERIES])
    row = torch.tensor([near for _, near in QUERIES])
    every = torch.ones(len(y), dtype=torch.bool)
    found = invert_scores(inverse_transition(TRANSITION), y, query, row, every, names)
    return np.array([found[name] for name in names])


def by_hand(y, name):
    kind, k = name[0], int(name[2:])
    hits = [[y[row] == y[q] for row in near[:k]] for q, near in QUERIES]
    return np.mean([any(one) if kind == "R" else np.mean(one) for one in hits])


def chance(given, true):
    return float(np.prod([TRANSITION[c, g] for c, g in zip(true, given)]))


def test_the_expected_value_is_the_score_of_the_true_labels():
    names = ("R@1", "R@3", "P@2")
    all_given = list(product((0, 1), repeat=4))
    found = {given: invert(given, names) for given in all_given}
    for true in (TRUE, (0, 1, 1, 1), (1, 0, 1, 0)):
        mean = sum(chance(given, true) * found[given][:, 0] for given in all_given)
        assert mean == pytest.approx([by_hand(true, name) for name in names], abs=1e-12)


def test_the_squared_error_is_the_sum_of_the_variances_by_one_label():
    names, all_given = ("R@1", "R@3", "P@2"), list(product((0, 1), repeat=4))
    found = {given: invert(given, names) for given in all_given}
    mean = sum(chance(g, TRUE) * found[g][:, 0] for g in all_given)
    variance = sum(chance(g, TRUE) * (found[g][:, 0] - mean) ** 2 for g in all_given)
    by_label = np.zeros(3)
    for i in range(4):
        for given in all_given:
            ways = [(*given[:i], label, *given[i + 1 :]) for label in (0, 1)]
            share = TRANSITION[TRUE[i]]
            middle = sum(p * found[w][:, 0] for p, w in zip(share, ways))
            by_label += chance(given, TRUE) * sum(p * (found[w][:, 0] - middle) ** 2 for p, w in zip(share, ways))
    # `error` is the root of a sum that one pattern may have below 0: such patterns count as 0, so the mean may be larger
    squares = sum(chance(g, TRUE) * found[g][:, 1] ** 2 for g in all_given)
    assert (squares >= by_label - 1e-12).all() and (by_label >= variance - 1e-12).all()
    assert squares[:1] == pytest.approx(by_label[:1], rel=0.35)


def test_uniform_noise_of_pairs_by_hand():
    share, classes = 0.3, 5
    y = torch.arange(60) % classes
    g = torch.Generator().manual_seed(0)
    z = torch.randn(classes, 4, generator=g)[y] + torch.randn(60, 4, generator=g)
    given = torch.as_tensor(Uniform(share)(y.numpy(), np.random.default_rng(0)))
    row = rank(z, given, k=10).row
    inverse = inverse_transition(Uniform(share).transition(np.arange(classes)))
    every = torch.ones(60, dtype=torch.bool)
    found = invert_scores(inverse, given, torch.arange(60), row, every, ["R@1", "P@4"])
    same = (1 - share) ** 2 + share**2 / (classes - 1)
    other = 2 * (1 - share) * share / (classes - 1) + share**2 * (classes - 2) / (classes - 1) ** 2
    for name, k in (("R@1", 1), ("P@4", 4)):
        seen = float((given[row[:, :k]] == given[:, None]).double().mean())
        assert found[name].value == pytest.approx((seen - other) / (same - other), rel=1e-9)


def test_without_noise_the_scores_are_the_plain_ones():
    y = torch.arange(40) % 7
    z = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    found = rank(z, y, k=39)
    names, every = ["R@1", "R@5", "P@3", "RP", "MAP@R"], torch.ones(40, dtype=torch.bool)
    got = invert_scores(np.eye(7), y, found.query, found.row, every, names)
    for name in names:
        assert got[name].value == pytest.approx(float(metric(name)(found).mean()), rel=1e-12)
        assert got[name].error == pytest.approx(0, abs=1e-7)  # root of rounding errors


def test_noise_without_information_is_an_error():
    with pytest.raises(LikewiseError, match="must leave most labels of a class right.*weighs a label by"):
        inverse_transition(np.full((3, 3), 1 / 3) + 1e-3 * np.eye(3))
    assert invertible("P@10") and invertible("RP") and not invertible("mAP") and not invertible("NMI")
