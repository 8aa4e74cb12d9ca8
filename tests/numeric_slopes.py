"""Checks a gradient against central differences."""

import numpy as np
import pytest

STEP = 1e-5


def assert_gradient(objective, point):
    """Assert that the gradient of `objective(point) -> (value, gradient)` is that of its values, in every coordinate."""
    _, gradient = objective(point)
    for place in range(len(point)):
        step = np.zeros_like(point)
        step[place] = STEP
        slope = (objective(point + step)[0] - objective(point - step)[0]) / (2 * STEP)
        assert gradient[place] == pytest.approx(slope, rel=1e-5, abs=1e-8)  # the second difference of float64
