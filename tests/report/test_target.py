"""What a report knows of one target."""

import numpy as np
from likewise.types import Items

from likewise.report.target import ReportTarget


def test_sides_are_those_that_the_samples_mark():
    asks = np.arange(6) < 2
    plain = Items("toy", np.arange(6) // 2, ("a", "b", "c"))
    marked = Items("toy", np.arange(6) // 2, ("a", "b", "c"), query=asks, gallery=~asks)
    assert [side.sum() for side in ReportTarget("me", items=plain).query_gallery] == [6, 6]
    assert [side.tolist() for side in ReportTarget("me", items=marked).query_gallery] == [
        asks.tolist(),
        (~asks).tolist(),
    ]
