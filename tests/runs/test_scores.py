"""scores.json comes back as it was written; damage is in test_folder."""

from likewise.runs.folder import Run
from likewise.runs.scores import read_scores, write_scores


def test_scores_come_back(tmp_path):
    scores = {"metrics": {"R@1": 0.5, "NMI": None}, "queries": 4}
    assert read_scores(tmp_path) is None
    write_scores(tmp_path, scores)
    assert read_scores(tmp_path) == scores == Run(tmp_path).scores
