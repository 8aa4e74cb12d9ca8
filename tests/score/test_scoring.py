"""Scoring: means, intervals and what they are over."""

import numpy as np
import pytest
import torch
from likewise.protocols import UnseenClasses
from likewise.types import Embedded, Items, Retrieval, Scores

from likewise.score.intervals import mean_interval
from likewise.score.retrieve import Scoring
from likewise.score.scoring import nearest_wrong, summary


def scoring(metrics):
    return Scoring(Items("toy", np.arange(2), ("a", "b")), UnseenClasses(), metrics)


@pytest.mark.parametrize(("classes", "over"), [(6, "queries"), (12, "classes")])
def test_means_are_those_of_the_queries_and_of_the_classes(classes, over):
    """Classes of 1, 2, 3, ... queries; the first has nothing to find, so it is in no mean."""
    label = np.repeat(np.arange(classes), np.arange(1, classes + 1))
    rng = np.random.default_rng(0)
    each = {name: rng.random(len(label)) for name in ("R@1", "MAP@R")}
    for value in each.values():
        value[0] = np.nan
    e = Embedded(torch.eye(len(label)), torch.as_tensor(label), torch.arange(len(label)))
    found = summary(Scores(each, np.arange(len(label)), label), e, scoring(list(each)))
    for name, value in each.items():
        by_class = [[v for v, c in zip(value, label, strict=True) if c == one] for one in range(1, classes)]
        flat = [v for values in by_class for v in values]
        assert found["metrics"][name] == pytest.approx(sum(flat) / len(flat))
        assert found["class_mean"][name] == pytest.approx(sum(sum(v) / len(v) for v in by_class) / len(by_class))
        low, high = found["interval"][name]
        assert low < found["metrics"][name] < high
    assert (found["queries"], found["unscored"], found["interval_over"]) == (len(label) - 1, 1, over)


def test_a_handful_of_queries_has_no_interval():
    label = np.array([0, 0, 1, 1])
    e = Embedded(torch.eye(4), torch.as_tensor(label), torch.arange(4))
    found = summary(Scores({"R@1": np.zeros(4)}, np.arange(4), label), e, scoring(["R@1"]))
    assert found["interval"] == {} and found["metrics"] == found["class_mean"] == {"R@1": 0.0}
    assert found["no_interval"] == {"R@1": "there are 4 queries, and 10 are needed"}


def test_the_interval_over_classes_knows_the_nearest_wrong_class():
    rng, label = np.random.default_rng(0), np.repeat(np.arange(12), 4)
    value, rival = rng.random(48), rng.integers(12, 24, 48)
    e = Embedded(torch.eye(48), torch.as_tensor(label), torch.arange(48))
    found = summary(Scores({"RP": value}, np.arange(48), label, rival), e, scoring(["RP"]))
    want = mean_interval(value, label, rival)
    assert found["interval"]["RP"] == [want.low, want.high] and found["no_interval"] == {}


def test_the_nearest_wrong_result_is_the_first_of_another_class():
    y = torch.tensor([0, 0, 1, 2, 2])
    row = torch.tensor([[1, 3, 2], [0, -1, -1], [3, 0, 1]])
    match = torch.tensor([[True, False, False], [True, False, False], [False, False, False]])
    none = torch.zeros(3, dtype=torch.int64)
    found = Retrieval(none, row, match, torch.zeros(3, 3), none, none, none[:0], torch.zeros(4, dtype=torch.int64))
    assert nearest_wrong(found, y).tolist() == [2, -1, 2]
