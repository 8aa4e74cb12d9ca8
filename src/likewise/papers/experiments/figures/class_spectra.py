"""Class spectra with and without rho-regularisation (training strategies, figure 11)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from likewise.core.files import write_csv
from likewise.core.render.figures import WITH_COLOUR, WITHOUT_COLOUR, write_figure
from likewise.core.settings import Bench
from likewise.papers.experiments.figures._groups import data_name, partners, seed_groups
from likewise.papers.experiments.figures._spectra import measure_spectra
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.papers.render.spectra import SpectrumLine, draw_spectra


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the class spectra as a PNG, one panel per method, and notes. Writes class_spectra.csv with a line per value."""
    _, groups = seed_groups(grid, sheet, done)
    pairs = partners(group.row for group in groups)
    groups = [group for group in groups if group.row in (*pairs, *pairs.values())]
    spectra, notes = measure_spectra(groups, config)
    mean = {group.row: np.mean([one.classes for one in own], 0) for group, own in zip(groups, spectra) if own}
    lines = []
    for plain, regularised in pairs.items():
        lines += [SpectrumLine(plain, "without", mean[plain], WITHOUT_COLOUR)] if plain in mean else []
        lines += (
            [SpectrumLine(plain, "with rho-regularisation", mean[regularised], WITH_COLOUR)]
            if regularised in mean
            else []
        )
    if not lines:
        return None, notes or ["no class spectra: no method has rows with and without rho-regularisation"]
    write_csv(
        sheet.folder / "class_spectra.csv", ["method", "regularised", "rank", "share"],
        [
            [line.panel, "no" if line.name == "without" else "yes", rank, value]
            for line in lines
            for rank, value in enumerate(line.values, 1)
        ],
    )  # fmt: skip
    figure = write_figure(draw_spectra(lines, data_name(done)), sheet.folder / "class_spectra.png")
    return figure, [*describe(pairs, mean), *notes]


def describe(pairs: dict[str, str], mean: dict[str, np.ndarray]) -> list[str]:
    """Return a note: the first singular value of the classes without and with regularisation, for each method with both."""
    both = [(plain, mean[plain][0], mean[other][0]) for plain, other in pairs.items() if {plain, other} <= mean.keys()]
    if not both:
        return []
    texts = "; ".join(f"{name} {100 * before:.1f} and {100 * after:.1f}" for name, before, after in both)
    less = sum(after < before for _, before, after in both)
    return [
        f"Largest singular value of a class in per cent of their sum, without and with rho-regularisation: {texts}. It is "
        f"smaller with regularisation for {less} of {len(both)} methods (the paper: slower decay for all)."
    ]
