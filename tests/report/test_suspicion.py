"""What labels were judged by, after the first epoch, half-way and at the end."""

import numpy as np

from likewise.report.suspicion import suspicion_histograms


def passes(count, wrong):
    one = {"edges": [0.0, 1.0], "right": [3, 2, 1], "wrong": wrong, "weight": [1.0, None, 0.5], "threshold": 0.5}
    return [{"step": 10 * (n + 1), "suspicion": one} for n in range(count)]


def test_the_first_the_middle_and_the_last_pass_are_told():
    found = suspicion_histograms(passes(7, [0, 1, 2]))
    assert [one.title for one in found] == [
        "after the first epoch, step 10",
        "half-way, step 40",
        "at the end, step 70",
    ]
    assert np.allclose(found[0].edge, [0, 1 / 3, 2 / 3, 1]) and found[0].wrong.tolist() == [0, 1, 2]
    assert found[0].right.tolist() == [3, 2, 1] and found[0].weight == (1.0, None, 0.5) and found[0].threshold == 0.5
    alone = suspicion_histograms(passes(1, None))
    assert len(alone) == 1 and alone[0].wrong is None and suspicion_histograms([{"step": 1, "loss": 2.0}]) == ()
