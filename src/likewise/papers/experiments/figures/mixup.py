"""Manifold mixup: score, spectral decay and spectra with and without it (training strategies, figure 13)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from likewise.core.files import write_csv
from likewise.core.render.figures import write_figure
from likewise.core.settings import Bench
from likewise.papers.experiments.figures._groups import SeedGroup, data_name, seed_groups
from likewise.papers.experiments.figures._spectra import Spectra, measure_spectra, rho_of
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.papers.render.mixup import MixupRecord, draw_mixup

MIXUP_SUFFIX = " + mixup"
"""How the name of a row with mixup ends; before it is the name of the row without."""


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the study as a PNG, one column per method, and notes. Writes mixup.csv with one line for each value."""
    metric, groups = seed_groups(grid, sheet, done)
    spectra, notes = measure_spectra(groups, config)
    records = [record_of(group, own) for group, own in zip(groups, spectra) if own]
    if not records:
        return None, notes
    write_csv(
        sheet.folder / "mixup.csv", ["method", "mixup", "value", "rank", "mean", "std", "seeds"],
        [line for record in records for line in _csv_lines(record, metric)],
    )  # fmt: skip
    figure = write_figure(draw_mixup(records, metric, data_name(done)), sheet.folder / "mixup.png")
    return figure, [*describe_effect(records, metric), *notes]


def record_of(group: SeedGroup, spectra: Sequence[Spectra]) -> MixupRecord:
    """Return the record of one method with or without mixup: score, rho, and the mean spectra over seeds."""
    is_mixed = group.runs[0].job.config.mixup is not None
    whole, classes = (np.mean([getattr(one, kind) for one in spectra], 0) for kind in ("whole", "classes"))
    return MixupRecord(group.row.removesuffix(MIXUP_SUFFIX), is_mixed, group.score, rho_of(spectra), whole, classes)


def _csv_lines(record: MixupRecord, metric: str) -> list[list]:
    start, n = [record.method, "yes" if record.is_mixed else "no"], record.score.n
    lines = [[*start, metric, "", *record.score], [*start, "rho", "", *record.rho]]
    for name, values in (("singular value", record.whole), ("class singular value", record.classes)):
        lines += [[*start, name, rank, value, "", n] for rank, value in enumerate(values, 1)]
    return lines


def describe_effect(records: Sequence[MixupRecord], metric: str) -> list[str]:
    """Return a note: score and rho without and with mixup for every method, and how many behave as in the paper."""
    found = {(record.method, record.is_mixed): record for record in records}
    pairs = [
        (found[method, False], found[method, True])
        for method, is_mixed in found
        if is_mixed and (method, False) in found
    ]
    if not pairs:
        return []
    texts = "; ".join(
        f"{a.method}: {metric} {a.score.text(1)} and {b.score.text(1)}, rho {a.rho.text(3)} and {b.rho.text(3)}"
        for a, b in pairs
    )
    lower = sum(b.score.mean < a.score.mean for a, b in pairs)
    decays = sum(b.rho.mean > a.rho.mean for a, b in pairs)
    return [
        f"Without and with mixup, mean ± standard deviation over seeds: {texts}.",
        f"With mixup {metric} is lower for {lower} of {len(pairs)} methods (the paper: for all), and rho is higher, that is, the "
        f"spectrum decays more, for {decays}. The paper's text has stronger decay and lower rho, which by its own definition "
        "exclude each other.",
    ]
