"""Probability that two images that agree are copies, from how well they agree and from all such pairs of the data set."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

COPY_COEFFICIENTS = (-9.77, -0.25, -3.18)
"""Coefficients of `copy_log_odds`, fitted on seven image sets (`benchmarks/near_copies.py`)."""
PRIOR_PAIR_COUNT = 4.0
"""Number of pairs, half of them copies, that are added to those of a data set when its share of copies is estimated."""
MIN_DETAIL_DIFFERENCE = 1e-3
"""Smallest difference of details that is distinguished from 0: compressing again causes more."""


def copy_log_odds(bits: float, detail: float, coefficients: tuple[float, float, float] = COPY_COEFFICIENTS) -> float:
    """Return the log odds that two images that agree are copies, if half of such pairs are.

    Formula: b0 + b1 bits + b2 log(1 - detail)
    """
    return float(np.dot(coefficients, (1.0, bits, np.log(max(1 - detail, MIN_DETAIL_DIFFERENCE)))))


def copy_probabilities(log_odds: Float[np.ndarray, "P"]) -> Float[np.ndarray, "P"]:
    """Return the probability of each pair to be copies, with the share of copies that these pairs make most likely.

    The share differs widely: nearly all photographs that agree are copies, and hardly any frames of a video.
    Formula: p = sigmoid(log odds + log(s / (1 - s))), s = (sum p + PRIOR_PAIR_COUNT / 2) / (P + PRIOR_PAIR_COUNT), repeated
    """
    share, p = 0.5, np.zeros(len(log_odds))
    for _ in range(200):
        p = 1 / (1 + np.exp(-(log_odds + np.log(share / (1 - share)))))
        share = (p.sum() + PRIOR_PAIR_COUNT / 2) / (len(p) + PRIOR_PAIR_COUNT)
    return p
