"""scores.json comes back as it was written; damage is in test_folder."""

import json

import pytest
from likewise.types import LikewiseError

from likewise.runs.folder import Run
from likewise.runs.scores import read_scores, write_scores


def test_scores_come_back(tmp_path):
    scores = {"metrics": {"R@1": 0.5, "NMI": 0.25}, "queries": 4}
    assert read_scores(tmp_path) is None
    write_scores(tmp_path, scores)
    assert read_scores(tmp_path) == scores == Run(tmp_path).scores


@pytest.mark.parametrize(
    "spoil",
    [
        {"metrics": None}, {"metrics": {"R@1": "0.5"}}, {"metrics": {"R@1": None}}, {"interval": {"R@1": [0.1]}},
        {"interval": {"R@1": "ab"}}, {"no_interval": "5"}, {"class_mean": [1]}, {"best_test_epoch": [None]}, {"queries": "9"},
        {"tree": {"levels": 3}}, {"labels": {"each": {"a": {"metrics": {"R@1": []}}}}}, {"galleries": {"far": {"metrics": 1}}},
        {"corrected": {"metrics": {"R@1": [0.5]}}}, {"before": None}, {"before": {"change": {"high": "x"}}},
    ],
)  # fmt: skip
def test_a_damaged_file(tmp_path, spoil):
    (tmp_path / "scores.json").write_text(json.dumps({"metrics": {"R@1": 0.5}} | spoil))
    with pytest.raises(LikewiseError, match=r"scores.json is damaged \(the value of \w+ has another type\); delete it"):
        read_scores(tmp_path)
