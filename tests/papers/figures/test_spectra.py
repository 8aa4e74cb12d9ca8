"""Spectra of training embeddings: those of `evaluate`, computed once, and gone when the run is trained again."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from likewise.config import Evaluate
from likewise.errors import LikewiseError

from likewise.papers.bench import bench
from likewise.papers.figures import spectra as module
from likewise.papers.figures.spectra import (
    SPECTRA_FILE,
    SpectrumLine,
    common_range,
    draw,
    draw_spectra,
    measure_spectra,
    rho_of,
)
from likewise.runs.folder import RESULT_FILES
from likewise.score.evaluate import evaluate


def test_the_figure_of_a_bench_has_the_rho_of_evaluate_and_is_computed_once(config, monkeypatch):
    settings = config(["decay_recall"], "[axes]\ndim = [4, 8]\nseed = [0, 1]", steps=2)
    sheet = bench(settings)
    lines = (sheet.folder / "decay_recall.csv").read_text("utf-8").splitlines()
    runs = [Path(line["run"]) for line in sheet.trainings]
    stored = [json.loads((run / SPECTRA_FILE).read_text("utf-8")) for run in runs]
    found = evaluate(Evaluate(str(runs[0]), split="train", metrics=("rho",), quiet=True, device="cpu"))
    assert stored[0]["rho"] == pytest.approx(found["metrics"]["rho"], abs=1e-9)
    assert sheet.figures == ("decay_recall.png",) and (sheet.folder / "decay_recall.png").exists()
    assert len(stored[0]["spectrum"]) == 4 and sum(stored[0]["spectrum"]) == pytest.approx(1)
    assert len(stored[0]["class_spectrum"]) == 35 and sum(stored[0]["class_spectrum"]) == pytest.approx(1)
    rho = float(lines[1].split(",")[2])
    assert rho == pytest.approx((stored[0]["rho"] + stored[1]["rho"]) / 2)
    assert (sheet.folder / "table.md").read_text("utf-8").splitlines()[2].endswith("(decay_recall.png)")
    monkeypatch.setattr(module, "compute_spectra", None)  # a second computation would fail
    assert bench(settings).notes == sheet.notes


def test_a_run_that_cannot_be_embedded_leaves_a_note(made, monkeypatch):
    table = made({"a": [(0.5, 0.1), (0.6, 0.2)], "b": [(0.5, 0.4)]})
    (table.done[2].job.run.path / SPECTRA_FILE).unlink()

    def broken(*_):
        raise LikewiseError("run: no network")

    monkeypatch.setattr(module, "compute_spectra", broken)
    (a, b), notes = measure_spectra(table.seed_groups(), table.config)
    assert notes == ["b: the training samples could not be embedded: run: no network"] and b == []
    assert rho_of(a).mean == pytest.approx(0.15) and math.isnan(rho_of(b).mean)
    assert np.array_equal(a[0].whole, [0.5, 0.3, 0.2])


def test_a_run_that_is_trained_again_loses_its_spectra():
    assert SPECTRA_FILE in RESULT_FILES


def test_pairs_are_drawn_and_other_rows_are_not(made):
    rows = {name: [(0.5, 0.1), (0.5, 0.1)] for name in ("A (D)", "R-A", "Other")}
    drawn = draw(made(rows, spectra={"A (D)": [0.7, 0.2, 0.1], "R-A": [0.4, 0.35, 0.25]}))
    columns, lines = drawn.values["class_spectra"]
    assert columns == ["method", "regularised", "rank", "share"] and drawn.figure
    assert [line[:3] for line in lines] == [["A (D)", with_it, rank] for with_it in ("no", "yes") for rank in (1, 2, 3)]
    assert [line[3] for line in lines] == pytest.approx([0.7, 0.2, 0.1, 0.4, 0.35, 0.25])
    assert "A (D) 70.0 and 40.0. It is smaller with regularisation for 1 of 1 methods" in drawn.notes[0]


def test_every_panel_has_its_lines_on_the_same_range():
    values = np.array([0.5, 0.3, 0.2, 0.0])
    lines = [SpectrumLine(p, n, values, "#000000") for p in ("A", "B", "C", "D") for n in ("without", "with")]
    figure = draw_spectra(lines, "cub200")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["A", "B", "C", "D"]
    assert {len(axes.lines) for axes in figure.axes} == {2} and {axes.get_yscale() for axes in figure.axes} == {"log"}
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert list(figure.axes[0].lines[0].get_xdata()) == [1, 2, 3]  # the value of rank 4 is 0
    title = "singular value, share of the sum"
    assert figure.texts[0].get_text() == "Singular values of the classes on cub200"
    assert [axes.get_ylabel() for axes in figure.axes] == [title, "", "", title]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["without", "with"]


def test_the_range_holds_all_positive_values():
    assert common_range([np.array([0.5, 0.0]), np.array([0.25, 0.1])]) == pytest.approx((0.08, 0.625))
