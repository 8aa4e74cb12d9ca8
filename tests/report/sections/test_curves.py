"""Curves of a log: every number in its panel, long ones thinned by means."""

import numpy as np

from likewise.report.sections.curves import draw_curves, thin_out, with_total

LOG = [
    {"step": 1, "relabelling": {"labels used": 0.8, "wrong labels, any": 0.2, "wrong labels, similar": 0.1, "AUROC": 0.7}},
    {"step": 2, "loss": 1.5, "lr": {"backbone": 0.1, "head": 0.2}, "images_per_s": 100.0, "sample_weights": {"weight": 0.9}},
    {"step": 3, "val MAP@R": 0.4, "val MAP@R by true labels": 0.5},
    {"step": 4, "loss": float("nan"), "test R@1": 0.6, "beta": 1.2},
]  # fmt: skip


def test_every_number_stands_in_its_panel():
    found = {(one.panel, one.name): (one.step, one.value) for one in draw_curves(LOG)}
    assert found == {
        ("loss", "loss"): ([2], [1.5]),  # what is not a number is left out
        ("validation", "MAP@R"): ([3], [0.4]),
        ("validation", "MAP@R by true labels"): ([3], [0.5]),
        ("test during training", "R@1"): ([4], [0.6]),
        ("labels flagged", "estimated wrong"): ([1], [0.2 + 0.1]),
        ("labels used", "used"): ([1], [0.8]),
        ("labels used", "mean sample weight"): ([2], [0.9]),
        ("wrong labels found", "AUROC"): ([1], [0.7]),
        ("components", "beta"): ([4], [1.2]),
        ("learning rate", "backbone"): ([2], [0.1]),
        ("learning rate", "head"): ([2], [0.2]),
        ("images/s", "images/s"): ([2], [100.0]),
    }
    assert next(iter(found)) == ("loss", "loss") and draw_curves([]) == ()


def test_a_long_curve_is_shown_by_means_of_pieces():
    points = [(10 * i, float(i * i)) for i in range(1, 24)]
    step, value = thin_out(points, 5)
    pieces = [points[i : i + 5] for i in range(0, 23, 5)]  # 23 / 5, rounded up
    assert step == [piece[-1][0] for piece in pieces]
    assert np.allclose(value, [sum(v for _, v in piece) / len(piece) for piece in pieces])
    assert thin_out(points, 23) == ([s for s, _ in points], [v for _, v in points])


def test_kinds_of_wrong_labels_are_added_up():
    assert with_total({"wrong labels, any": 0.2, "wrong labels, similar": 0.3})["wrong labels"] == 0.5
    assert with_total({"labels used": 1.0}) == {"labels used": 1.0}
