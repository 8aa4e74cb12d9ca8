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
from likewise.papers.figures.seed_groups import seed_groups
from likewise.papers.figures.spectra import SPECTRA_FILE, measure_spectra, rho_of
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
    grid, sheet, done, config = made({"a": [(0.5, 0.1), (0.6, 0.2)], "b": [(0.5, 0.4)]})
    (done[2].job.run.path / SPECTRA_FILE).unlink()

    def broken(*_):
        raise LikewiseError("run: no network")

    monkeypatch.setattr(module, "compute_spectra", broken)
    (a, b), notes = measure_spectra(seed_groups(grid, sheet, done)[1], config)
    assert notes == ["b: the training samples could not be embedded: run: no network"] and b == []
    assert rho_of(a).mean == pytest.approx(0.15) and math.isnan(rho_of(b).mean)
    assert np.array_equal(a[0].whole, [0.5, 0.3, 0.2])


def test_a_run_that_is_trained_again_loses_its_spectra():
    assert SPECTRA_FILE in RESULT_FILES
