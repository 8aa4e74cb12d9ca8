"""Toys of confidence: eq. 12 by hand and by SciPy, the mixture of losses, and the sentence about a toy."""

import math

import numpy as np
import pytest
from scipy.special import lambertw

from likewise.papers.figures.confidence_toys import (
    TOY_SAMPLES,
    Toy,
    ToyConfidence,
    confidence_of,
    describe,
    draw_toys,
    mixture_losses,
)


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


def test_otsu_spares_right_labels_and_the_average_does_not(tmp_path, drawn_alone):
    lines, notes = drawn_alone("toy_thresholds", tmp_path)
    assert len(lines) == 2 * 2 * TOY_SAMPLES
    assert notes[0].startswith("10 % wrong labels, τ = average (SuperLoss): threshold 1.20;")  # 0.9 * 1 + 0.1 * 3
    assert "25 % of the right labels are below 1" in notes[0]  # P(z > 0.2 / 0.3)
    assert all(note.endswith("; 0 % of the right labels are below 1.") for note in notes[1:])


def toy(name, confidences):
    loss, wrong = np.array([0.0, 0.1, 0.2, 4.0]), np.array([False, False, False, True])
    curve = np.array([0.0, 4.0])
    ways = [ToyConfidence(f"way {n}", 1.0 + n, c, curve, c[[0, 3]]) for n, c in enumerate(confidences)]
    return Toy(name, loss, wrong, ways)


def test_a_row_per_toy_with_its_losses_and_a_histogram_per_confidence():
    one, other = np.array([2.0, 1.0, 1.0, 0.5]), np.array([1.0, 1.0, 1.0, 0.25])
    figure = draw_toys([toy("a", [one, other]), toy("b", [one, other])])
    titles = [axes.get_title("left") for axes in figure.axes]
    assert [t for t in titles if t] == ["a", "way 0", "way 1", "b", "way 0", "way 1"]
    losses, over = figure.axes[0], next(axes for axes in figure.axes if axes.get_ylabel() == "confidence")
    assert [list(line.get_ydata()) for line in over.get_lines()] == [[2.0, 0.5], [1.0, 0.25]]
    assert [line.get_xdata()[0] for line in losses.get_lines() if len(line.get_xdata()) == 2] == [
        1.0,
        2.0,
    ]  # thresholds
    histogram = next(axes for axes in figure.axes if axes.get_title("left") == "way 1")
    heights = [bar.get_height() for bar in histogram.patches]
    right, wrong = heights[: len(heights) // 2], heights[len(heights) // 2 :]
    assert sum(right) == pytest.approx(100) == sum(wrong)
    assert histogram.get_xlim()[1] >= 2  # both histograms of a row have the same range
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        "right labels", "wrong labels", "confidence, way 0", "confidence, way 1", "threshold τ",
    ]  # fmt: skip
