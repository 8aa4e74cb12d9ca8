"""Recall over iterations: points of the first training, an average of each, in the panel of its noise and method."""

import numpy as np

from likewise.papers.figures.noise_recall import NoiseRecall, draw_noise_recall

STEP = np.arange(1, 5)


def one(row, column, level):
    value = np.full(4, level)
    return NoiseRecall(row, column, STEP, value, value / 2, value / 4)


def test_every_training_has_its_average_and_the_first_its_points():
    made = [
        one("uniform", "NCA", 0.8),
        one("uniform", "NCA", 0.4),
        one("uniform", "MS", 0.2),
        one("semantic", "MS", 0.6),
    ]
    figure = draw_noise_recall(made)
    panels = {axes.get_title("left"): axes for axes in figure.axes}
    assert list(panels) == ["NCA, uniform", "MS, uniform", "NCA, semantic", "MS, semantic"]
    drawn = [line.get_ydata()[0] for line in panels["NCA, uniform"].get_lines()]
    assert np.allclose(drawn, [80, 40, 20, 20, 10])  # points; average and flagged share of each training
    assert not panels["NCA, semantic"].get_lines()
    assert len(figure.legends[0].get_texts()) == 3
    assert panels["MS, semantic"].get_ylabel() == "" and panels["NCA, uniform"].get_ylabel().startswith("recall")
