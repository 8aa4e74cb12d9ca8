"""Spectral decay of training embeddings against the test score, with correlation (training strategies, figure 10)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from likewise.core.files import write_csv
from likewise.core.render.figures import write_figure
from likewise.core.settings import Bench
from likewise.papers.experiments.figures._groups import data_name, partners, seed_groups
from likewise.papers.experiments.figures._spectra import measure_spectra, rho_of
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.papers.render.decay_recall import DecayPoint, describe_correlation, draw_decay
from likewise.score.significance import correlate


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the scatter plot as a PNG, and a note about the correlation. Writes decay_recall.csv with a line per method."""
    metric, groups = seed_groups(grid, sheet, done)
    spectra, notes = measure_spectra(groups, config)
    plain_of = {regularised: plain for plain, regularised in partners(group.row for group in groups).items()}
    points = [
        DecayPoint(group.row, rho_of(own), group.score, plain_of.get(group.row))
        for group, own in zip(groups, spectra)
        if own
    ]
    if not points:
        return None, notes
    write_csv(
        sheet.folder / "decay_recall.csv", ["method", "regularised", "rho", "rho_std", metric, "std", "seeds"],
        [
            [p.name, "yes" if p.partner else "no", p.rho.mean, p.rho.std, p.score.mean, p.score.std, p.score.n]
            for p in points
        ],
    )  # fmt: skip
    found = correlate([p.rho.mean for p in points], [p.score.mean for p in points])
    figure = write_figure(draw_decay(points, metric, data_name(done), found), sheet.folder / "decay_recall.png")
    said = [
        f"Spectral decay rho of the training embeddings against {metric} of the test split: {describe_correlation(found)}."
    ]
    by_name = {p.name: p for p in points}
    pairs = [(by_name[p.partner], p) for p in points if p.partner in by_name]
    if pairs:
        down = sum(after.rho.mean < before.rho.mean for before, after in pairs)
        both = sum(after.rho.mean < before.rho.mean and after.score.mean > before.score.mean for before, after in pairs)
        said.append(
            f"With rho-regularisation rho is lower for {down} of {len(pairs)} methods, and at the same time {metric} higher "
            f"for {both} (the paper: for each)."
        )
    return figure, [*said, INTERVAL_NOTE * bool(np.isfinite(found.pearson.low)), *notes]


INTERVAL_NOTE = (
    "The intervals of the correlation treat the methods as independent draws from a population of methods; methods of one family "
    "are not independent, so the intervals are too narrow."
)
