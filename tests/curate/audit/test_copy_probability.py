"""Probability of copies: the formula by hand, and the share of copies estimated from the pairs."""

import math

import numpy as np
import pytest

from likewise.curate.audit.copy_probability import copy_log_odds, copy_probabilities


def test_probability_of_copies_by_hand():
    assert copy_log_odds(4, 1 - math.exp(-5)) == pytest.approx(-9.77 - 0.25 * 4 + 3.18 * 5)
    assert copy_log_odds(0, 1.0) == copy_log_odds(0, 0.9999) == pytest.approx(-9.77 - 3.18 * math.log(1e-3))
    (p,) = copy_probabilities(np.array([0.0]))
    share = (p + 2) / 5
    assert p == pytest.approx(share) == pytest.approx(0.5)  # s / (1 - s) = p / (1 - p)
    many = copy_probabilities(
        np.array([-3.0] * 800 + [3.0] * 4)
    )  # frames of a video: pairs that agree a little are many
    assert many[0] < 0.01 and many[-1] < 0.5 < copy_probabilities(np.array([3.0] * 4))[0]
    assert copy_probabilities(np.zeros(0)).tolist() == []
