"""Fixtures of the tests of figures: a table of hand-made scores and spectra, without any training."""

import csv
import json

import pytest
from likewise.config import Bench, Train

from likewise.papers.benchmark_table import BenchmarkTable, Entry
from likewise.papers.figures import figure_function
from likewise.papers.figures.spectra import SPECTRA_FILE
from likewise.papers.grid import Cell, Grid, Point
from likewise.papers.grid_plan import Job, PlannedRun


@pytest.fixture
def made(tmp_path):
    """Return the arguments of `draw` for rows on one axis: name -> values of R@1 and rho per seed, and a spectrum of three."""

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
        return grid, sheet, done, Bench("made", quiet=True)

    return made


@pytest.fixture
def drawn_alone():
    """Draw a figure that needs no training into a folder; return the lines of its CSV file, and its notes."""

    def drawn_alone(name, folder):
        sheet = BenchmarkTable("x", "x", (), (), folder=folder)
        png, notes = figure_function(name)(Grid("t", {}, {}, {}), sheet, [], Bench("x"))
        assert png.startswith(b"\x89PNG") and png == (folder / f"{name}.png").read_bytes()
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file)), notes

    return drawn_alone
