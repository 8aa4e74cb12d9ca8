"""Fixtures that several tests of experiments share."""

import csv
import json

import pytest
from likewise.config import Bench, Train, Tune

from likewise.papers.benchmark_table import BenchmarkTable, Entry
from likewise.papers.figures.drawing import FinishedTable, write_drawing
from likewise.papers.figures.spectra import SPECTRA_FILE
from likewise.papers.grid import Cell, Grid, Point
from likewise.papers.grid_plan import Job, PlannedRun

SEARCH = """
[settings]
data = "{data}"
sampler = "SamplesPerClass(batch=16, per_class=4)"
dim = 8
steps = 8
validate_every = 4
protocol = "{protocol}"
"""


@pytest.fixture
def search_config(features, tmp_path, monkeypatch):
    """Settings of tune on the features, two folds, few steps, and no time spent on pictures."""
    pytest.importorskip("optuna")
    monkeypatch.setattr("likewise.papers.optuna_study.draw_search", lambda file, *_: file.touch())

    def config(*ranges, protocol="ClassFolds(folds=2)", **settings):
        file = tmp_path / "config.toml"
        file.write_text(SEARCH.format(data=features, protocol=protocol), "utf-8")
        usual = {"out": str(tmp_path / "out"), "trials": 3, "device": "cpu", "quiet": True, "pruner": "none"}
        return Tune(str(file), ranges=ranges or ("lr=1e-4..1e-1 log",), **usual | settings)

    return config


FOLLOWED_GRID = """
then = {then}
{top}
[settings]
data = "{data}"
sampler = "SamplesPerClass(batch=16, per_class=4)"
dim = 8
steps = {length}
lr = 3e-3
metrics = ["R@1"]
{axes}
"""


@pytest.fixture
def config(features, tmp_path):
    """Return the settings of bench for a grid with these follow-ups and axes."""

    def config(then, axes, top="", steps=12):
        file = tmp_path / "grid.toml"
        file.write_text(
            FOLLOWED_GRID.format(then=json.dumps(then), top=top, axes=axes, data=features, length=steps), "utf-8"
        )
        return Bench(str(file), out=str(tmp_path / "out"), device="cpu", quiet=True)

    return config


@pytest.fixture
def made(tmp_path):
    """Return what a figure is drawn from: rows on one axis, name -> R@1 and rho per seed, and a spectrum of three."""

    def made(rows, axis="method", spectra=None, printed=None, **settings):
        entries, done = [], []
        for name, seeds in rows.items():
            printed_here = (printed or {}).get(name)
            entries.append(Entry((name,), ("R@1",), tuple(score for score, _ in seeds), len(seeds), printed_here))
            for seed, (_, rho) in enumerate(seeds):
                run = tmp_path / f"{name}-{seed}"
                run.mkdir()
                spectrum = (spectra or {}).get(name, [0.5, 0.3, 0.2])
                content = {"rho": rho, "spectrum": spectrum, "class_spectrum": spectrum}
                (run / SPECTRA_FILE).write_text(json.dumps(content), "utf-8")
                own = settings.get(name, {})
                config = Train("glyphs", out=str(run), metrics=("R@1",), **own)
                done.append(
                    PlannedRun(len(done) + 1, Cell({axis: name, "seed": str(seed)}, {}), None, Job(config, "id"))
                )
        points = [Point(name, {}) for name in rows]
        grid = Grid("made", {}, {axis: points, "seed": [Point("0", {}), Point("1", {})]}, {})
        sheet = BenchmarkTable("made", "made", (axis,), tuple(entries), folder=tmp_path)
        return FinishedTable(grid, sheet, done, Bench("made", quiet=True))

    return made


@pytest.fixture
def drawn_alone():
    """Draw a figure that needs no training into a folder; return the lines of its CSV file, and its notes."""

    def drawn_alone(name, folder):
        sheet = BenchmarkTable("x", "x", (), (), folder=folder)
        png, notes = write_drawing(name, FinishedTable(Grid("t", {}, {}, {}), sheet, [], Bench("x")))
        assert png.startswith(b"\x89PNG") and png == (folder / f"{name}.png").read_bytes()
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file)), notes

    return drawn_alone
