"""Figure 4 of ProcSim: no confidence above the bound of its kind, and separable modes are separated."""

import math

import numpy as np
import pytest

from likewise.papers.figures.confidence_toys import TOY_SAMPLES


def test_both_bounds_for_both_mixtures(tmp_path, drawn_alone):
    lines, notes = drawn_alone("toy_bounds", tmp_path)
    assert len(lines) == 2 * 2 * TOY_SAMPLES and len(notes) == 4
    keys = [(line["toy"], line["confidence of"], line["label"]) for line in lines]
    value = np.array([float(line["confidence"]) for line in lines])
    for key in set(keys):
        found = value[[own == key for own in keys]]
        toy, of, label = key
        highest = 1 if "ProcSim" in of else math.e
        assert len(found) == TOY_SAMPLES / 2 and found.max() <= highest * (1 + 1e-6)
        if toy == "separable modes":
            assert found.max() < 1 if label == "wrong" else np.quantile(found, 0.05) == pytest.approx(highest, rel=1e-6)
