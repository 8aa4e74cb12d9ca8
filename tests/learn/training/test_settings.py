"""Settings are checked before data is read."""

import pytest
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.learn.training.fit import train
from likewise.learn.training.settings import describe_folds


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"metrics": ("R@1", "MAPR")}, "did you mean 'MAP@R'"),
        ({"select": "severity"}, "--select needs a metric of which high is good"),
        ({"loss": "ProxyAncor"}, "did you mean 'ProxyAnchor'"),
        ({"confidence": "labelposterior"}, "did you mean 'LabelPosterior'"),
        ({"backbone": "resnt50"}, "did you mean resnet50"),
    ],
)
def test_names_are_checked_before_data_is_read(wrong, says):
    with pytest.raises(LikewiseError, match=says):
        train(Train(data="no such folder", **wrong))


def test_folds_that_are_left_out_are_named():
    assert describe_folds(Train("x", protocol="ClassFolds(folds=4)")).startswith("this trains the first of 4 folds")
    assert describe_folds(Train("x")) == describe_folds(Train("x", protocol="ClassFolds(folds=4, fold=1)")) == ""
