from likewise.config import Compare

from likewise.cli.stages.compare import compare
from likewise.score.result_views import Compared


def test_a_run_does_not_differ_from_itself(finished):
    found = compare(Compare(str(finished.path), str(finished.path)))
    assert isinstance(found, Compared) and found["metrics"]["R@1"]["difference"] == 0 and found["same"]
