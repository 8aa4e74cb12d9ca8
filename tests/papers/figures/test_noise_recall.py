"""Recall of wrong labels over iterations: the moving average by hand, and what is read from the log."""

import csv

import numpy as np
import pytest
from likewise.config import Bench, Train

from likewise.papers.benchmark_table import BenchmarkTable
from likewise.papers.figures.drawing import FinishedTable, write_drawing
from likewise.papers.figures.noise_recall import NoiseRecall, draw_noise_recall, moving_average, recall_of
from likewise.papers.grid import Cell, Grid
from likewise.papers.grid_plan import Job, PlannedRun
from likewise.runs.folder import Run


def test_the_moving_average_by_hand():
    step = np.arange(1, 6)
    value = np.array([1.0, 0.0, 0.5, 0.5, 1.0])
    assert moving_average(step, value, 3) == pytest.approx([1, 0.5, 0.5, 1 / 3, 2 / 3])
    assert moving_average(step, value, 100) == pytest.approx(np.cumsum(value) / step)


def test_a_line_of_several_steps_counts_as_often_as_it_has_steps():
    each = np.array([0.2, 0.4, 0.6, 0.8, 1.0, 0.0])
    coarse = moving_average(np.array([2, 4, 6]), each.reshape(3, 2).mean(1), 4)
    assert coarse == pytest.approx(moving_average(np.arange(1, 7), each, 4)[1::2])
    uneven = moving_average(np.array([20, 25]), np.array([1.0, 0.0]), 100)
    assert uneven == pytest.approx([1, 0.8])


def log(values, every=1):
    lines = [
        {"step": every * n, "loss": 1.0, "sample_weights": {"recall": value, "suspected share": 0.5, "weight": 1.0}}
        for n, value in enumerate(values, 1)
    ]
    return [*lines, {"step": every * len(values), "val R@1": 0.3}]


def test_only_lines_with_a_recall_are_read():
    one = recall_of([*log([0.25, 0.75]), {"step": 3, "sample_weights": {"weight": 1.0}}], "r", "c")
    assert (one.row, one.column, one.step.tolist()) == ("r", "c", [1, 2])
    assert one.recall.tolist() == [0.25, 0.75] and one.average.tolist() == [0.25, 0.5]
    assert one.flagged.tolist() == [0.5, 0.5]
    assert recall_of([{"step": 1, "loss": 2.0}], "r", "c") is None


def planned(method, lines, folder):
    run = folder / method
    run.mkdir()
    Run(run).log(lines)
    return PlannedRun(1, Cell({"method": method, "noise": "n"}, {}), None, Job(Train("x", out=str(run)), "id"))


def test_the_figure_has_its_values_and_names_coarse_logs(tmp_path):
    grid = Grid("t", {}, {"method": [], "noise": []}, {}, columns=("noise",))
    logs = {"a": log([0.5] * 5), "b": log([1.0] * 3, every=20), "c": [{"step": 1}]}
    done = [planned(method, lines, tmp_path) for method, lines in logs.items()]
    sheet = BenchmarkTable("x", "x", (), (), folder=tmp_path)
    png, notes = write_drawing("noise_recall", FinishedTable(grid, sheet, done, Bench("x")))
    assert png == (tmp_path / "noise_recall.png").read_bytes()
    with (tmp_path / "noise_recall.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(r["method"], r["step"], r["recall"]) for r in lines[4:6]] == [("a", "5", "0.5"), ("b", "20", "1.0")]
    assert any("log of 1 trainings has means of 20 iterations" in note for note in notes)
    assert "At the end: a, n 50 % (by chance 50 %); b, n 100 % (by chance 50 %)." in notes
    png, notes = write_drawing("noise_recall", FinishedTable(grid, sheet, done[2:], Bench("x")))
    assert png is None and "no recall" in notes[0]


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
