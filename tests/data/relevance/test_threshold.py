import pytest
from likewise.types import LikewiseError

from likewise.data.relevance._threshold import check_threshold


def test_a_threshold_is_above_0_and_at_most_1():
    check_threshold("X", 1e-6)
    check_threshold("X", 1)
    for bad in (0, -0.1, 1.01, float("nan")):
        with pytest.raises(LikewiseError, match="X: threshold must be above 0 and at most 1, got"):
            check_threshold("X", bad)
