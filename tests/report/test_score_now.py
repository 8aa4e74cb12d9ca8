"""Scores of embeddings that bring none."""

import numpy as np
from likewise.config import Report, Train
from likewise.types import Items

from likewise.report.score_now import NO_TEST_SPLIT_NOTE, is_tested, score_now
from likewise.report.target import ReportTarget

QUIET = Report(quiet=True, device="cpu")


def target(y, **known):
    x = np.eye(3, dtype=np.float32)[y]
    return ReportTarget("me", items=Items("toy", y, ("a", "b", "c"), x=x), row=np.arange(len(y)) + 10, **known)


def test_neighbours_are_rows_of_the_data():
    found = score_now(target(np.array([0, 0, 1, 1, 2])), QUIET)
    assert found.scores["metrics"]["R@1"] == 1 and found.scores["unscored"] == 1
    assert found.queries.row.tolist() == [10, 11, 12, 13, 14] and found.queries.nearest[0, 0] == 11


def test_what_cannot_be_scored_is_noted():
    assert score_now(target(np.array([0, 1, 2])), QUIET).notes[-1].startswith("no query has a relevant")
    trained = Train(data="x", protocol="UnseenClasses(train=1)")
    assert not is_tested(trained) and is_tested(Train(data="x", protocol="my_lab.Mine()"))  # which may not be imported
    assert score_now(target(np.array([0, 0, 1, 1]), settings=trained), QUIET).notes == (NO_TEST_SPLIT_NOTE,)
