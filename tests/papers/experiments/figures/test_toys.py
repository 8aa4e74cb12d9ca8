"""Toys of confidence: eq. 12 by hand and by SciPy, the mixture of losses, and the sentence about a toy."""

import math

import numpy as np
import pytest
from scipy.special import lambertw

from likewise.papers.figures.confidence_toys import TOY_SAMPLES, Toy, confidence_of, describe, mixture_losses


def test_losses_are_of_two_gaussians_in_the_wanted_shares():
    loss, wrong = mixture_losses((1.0, 5.0), deviation=0.5, wrong_share=0.25)
    assert len(loss) == TOY_SAMPLES and wrong.sum() == TOY_SAMPLES / 4
    for some, mean in ((~wrong, 1.0), (wrong, 5.0)):  # 4 standard errors
        assert abs(loss[some].mean() - mean) < 4 * 0.5 / some.sum() ** 0.5
        assert loss[some].std() == pytest.approx(0.5, abs=0.05)
    again, _ = mixture_losses((1.0, 5.0), deviation=0.5, wrong_share=0.25)
    assert (again == loss).all()


def test_confidences_by_hand_and_by_scipy():
    loss = np.array([-9.0, 0.5, 1.0, 1.0 + 2 * math.e, 4.0])
    superloss, procsim = (confidence_of("x", loss, 1.0, 1.0, bound) for bound in (-2 / math.e, 0.0))
    assert superloss.confidence[[0, 2, 3]] == pytest.approx([math.e, 1, 1 / math.e], rel=1e-5)  # W(e) = 1
    assert procsim.confidence[[0, 1, 2, 3]] == pytest.approx([1, 1, 1, 1 / math.e], rel=1e-5)
    for one, bound in ((superloss, -2 / math.e), (procsim, 0.0)):
        inner = np.maximum(bound, loss[1:] - 1.0) / 2
        assert one.confidence[1:] == pytest.approx(np.exp(-lambertw(inner).real), rel=1e-5)
        assert one.curve_confidence[[0, -1]] == pytest.approx(one.confidence[[0, 3]], rel=1e-6)
        assert (np.diff(one.curve_confidence) <= 0).all()


def test_the_sentence_about_a_toy_by_hand():
    loss, wrong = np.array([0.0, 0.0, 2.0, 4.0]), np.array([False, False, False, True])
    way = confidence_of("w", loss, 1.0, 0.5, 0.0)._replace(confidence=np.array([1.0, 1.0, 0.7, 0.25]))
    assert describe(Toy("t", loss, wrong, [way]), way) == (
        "t, w: threshold 1.00; mean confidence of right labels 0.90, of wrong labels 0.25; 33 % of the right labels are below 1."
    )
