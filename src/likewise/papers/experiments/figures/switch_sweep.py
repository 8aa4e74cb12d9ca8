"""Score and spectral decay against p_switch, the probability of rho-regularisation (training strategies, figure 8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from likewise.core.files import write_csv
from likewise.core.render.figures import write_figure
from likewise.core.settings import Bench
from likewise.papers.experiments.figures._groups import data_name, seed_groups
from likewise.papers.experiments.figures._spectra import measure_spectra, rho_of
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable, label
from likewise.papers.render.switch_sweep import SweepPoint, draw_sweep

SWITCH_AXIS = "p_switch"
"""The axis of the grid whose names are the probabilities; 0 is training without regularisation."""


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the sweep as a PNG, and a note for every line. Writes switch_sweep.csv with one line for each point."""
    if SWITCH_AXIS not in grid.axes:
        return None, [f"no sweep: the grid needs an axis {SWITCH_AXIS}, whose names are probabilities"]
    metric, groups = seed_groups(grid, sheet, done)
    spectra, notes = measure_spectra(groups, config)
    points = []
    for group, own in zip(groups, spectra):
        line = label([name for axis, name in group.names.items() if axis not in (SWITCH_AXIS, "seed")])
        points.append(SweepPoint(line, float(group.names[SWITCH_AXIS]), group.score, rho_of(own)))
    points.sort(key=lambda point: point.probability)
    write_csv(
        sheet.folder / "switch_sweep.csv", ["line", SWITCH_AXIS, metric, "std", "rho", "rho_std", "seeds"],
        [[p.line, p.probability, p.score.mean, p.score.std, p.rho.mean, p.rho.std, p.score.n] for p in points],
    )  # fmt: skip
    lines = dict.fromkeys(point.line for point in points)
    said = [describe_line([point for point in points if point.line == line], metric) for line in lines]
    figure = write_figure(draw_sweep(points, metric, data_name(done)), sheet.folder / "switch_sweep.png")
    return figure, [*filter(None, said), *notes]


def describe_line(points: Sequence[SweepPoint], metric: str) -> str:
    """Return a sentence: score and rho without regularisation, and at the probability with the best mean; "" for one point."""
    plain = next((point for point in points if point.probability == 0), None)
    switched = [point for point in points if point.probability > 0]
    if plain is None or not switched:
        return ""
    best = max(switched, key=lambda point: point.score.mean)
    above = sum(point.score.mean > plain.score.mean for point in switched)
    rho = "" if np.isnan(plain.rho.mean) else f", rho {plain.rho.text(3)} and {best.rho.text(3)}"
    return (
        f"{points[0].line + ': ' if points[0].line else ''}{metric} without regularisation {plain.score.text(1)}, best "
        f"{best.score.text(1)} at p_switch {best.probability:g}{rho} (mean ± standard deviation over seeds). {above} of "
        f"{len(switched)} probabilities have a higher mean than without; the best of several is biased upwards."
    )
