"""Wrong test labels are reported where there are many, and right ones raise no alarm."""

import math

import numpy as np
import pytest
import torch
from likewise.types import Embedded, Items
from sklearn.datasets import load_digits

from likewise.labels.label_noise import Noise
from likewise.score import wrong_labels as module
from likewise.score.wrong_labels import find_wrong_labels, wrong_share


def clusters(classes, size, dim, separation, seed=0):
    rng, y = np.random.default_rng(seed), np.repeat(np.arange(classes), size)
    return rng.normal(size=(classes, dim))[y] * separation + rng.normal(size=(len(y), dim)), y


def with_wrong(y, share, seed=1):
    """The labels, some of them exchanged with any other, and how many."""
    rng, classes = np.random.default_rng(seed), y.max() + 1
    wrong = rng.random(len(y)) < share
    return np.where(wrong, (y + rng.integers(1, classes, len(y))) % classes, y), int(wrong.sum())


def find(x, y, **columns):
    z = torch.nn.functional.normalize(torch.as_tensor(np.asarray(x)).float(), dim=1)
    items = Items("toy", y, tuple(map(str, range(y.max() + 1))), **columns)
    return find_wrong_labels(Embedded(z, torch.as_tensor(y), torch.arange(len(y))), items)


@pytest.mark.slow
def test_right_labels_raise_no_alarm_and_wrong_ones_are_counted(subtests):
    digits = load_digits()
    for name, x, y in (
        ("digits", digits.data[:600] - digits.data.mean(0), digits.target[:600]),
        ("well separated", *clusters(20, 30, 32, 0.8)),
        ("overlapping", *clusters(20, 30, 64, 0.5)),
    ):
        with subtests.test(name):
            assert find(x, y) is None
            given, planted = with_wrong(y, 0.08)
            found = find(x, given)
            assert found["of"] == len(y)
            assert 0.6 * planted < found["count"] < 1.9 * planted


def test_a_poor_network_with_right_labels_raises_no_alarm():
    """Classes that the network confuses look like labels that people exchange."""
    for seed in range(3):
        assert find(*clusters(20, 30, 16, 0.5, seed)) is None


@pytest.mark.parametrize(
    ("explained", "uniform", "similar", "reported"),
    [
        (0.24, 0.5, 0.0, 0.0),
        (0.26, 0.5, 0.0, 0.5),
        (0.26, 0.04, 0.2, 0.0),
        (0.71, 0.01, 0.03, 0.04),
        (0.71, 0.01, 0.0, 0.0),
    ],
)
def test_shares_are_reported_if_the_embeddings_explain_the_labels(explained, uniform, similar, reported):
    y = torch.arange(400) % 8
    noise = Noise((1.0,), uniform, similar, None, torch.zeros(8), explained * math.log(8), 400)
    assert wrong_share(noise, y) == pytest.approx(reported)


def test_of_many_rows_some_are_drawn_and_the_count_is_for_all(monkeypatch):
    x, y = clusters(10, 100, 32, 0.8)
    given, planted = with_wrong(y, 0.1)
    monkeypatch.setattr(module, "MAX_CHECKED_ROWS", 400)
    found = find(x, given)
    assert found["of"] == 1000 and 0.6 * planted < found["count"] < 1.5 * planted


def test_too_few_rows_or_too_small_classes_are_not_checked(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("it must not be computed")

    monkeypatch.setattr(module, "discriminate", fail)
    x, y = clusters(10, 15, 8, 1.0)
    assert find(x, with_wrong(y, 0.2)[0]) is None
    x, y = clusters(100, 4, 8, 1.0)
    assert find(x, with_wrong(y, 0.2)[0]) is None
    x, y = clusters(1, 300, 8, 1.0)
    assert find(x, y) is None


def test_labels_that_the_embeddings_do_not_explain_are_no_alarm():
    x, y = clusters(10, 40, 8, 0.0)
    assert find(x, y, group=np.arange(400) // 4) is None
