"""Manifold mixup: score, spectral decay and spectra with and without it (training strategies, figure 13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from likewise.core.render.figures import (
    INK_COLOUR,
    ROUND_STEPS,
    WITH_COLOUR,
    WITHOUT_COLOUR,
    Estimate,
    entitle,
    tidy,
)
from likewise.papers.figures.drawing import Drawing, FinishedTable, SeedGroup, styled
from likewise.papers.figures.spectra import Spectra, SpectrumLine, common_range, draw_panel, measure_spectra, rho_of

MIXUP_SUFFIX = " + mixup"
"""How the name of a row with mixup ends; before it is the name of the row without."""

PANEL_WIDTH, BARS_HEIGHT, SPECTRUM_HEIGHT, PANEL_GAP, TITLE_HEIGHT = 2.7, 0.75, 2.0, 0.58, 0.9
"""Inches: width of a column, heights of the panels with bars and with spectra, room below a panel, and for the title."""

PANEL_KINDS = {
    "score": (BARS_HEIGHT, "", ""),
    "rho": (BARS_HEIGHT, "spectral decay ρ", ""),
    "whole": (SPECTRUM_HEIGHT, "rank", "singular value\n(all samples)"),
    "classes": (SPECTRUM_HEIGHT, "rank", "singular value\n(mean of classes)"),
}
"""Field of a record -> height of its panel, label of the horizontal axis (the metric for "score"), and of the vertical one."""

BARS_AXIS_SHARE = 1.5
"""Length of the axis of bars as a share of the longest bar: room for its number."""


class MixupRecord(NamedTuple):
    """One method with or without mixup: score in per cent and rho over seeds, and mean spectra of training embeddings."""

    method: str
    is_mixed: bool
    score: Estimate
    rho: Estimate
    whole: Float[np.ndarray, "S"]
    classes: Float[np.ndarray, "R"]


def draw(table: FinishedTable) -> Drawing:
    """Return the study, one column per method, and notes."""
    metric, groups = table.metric, table.seed_groups()
    spectra, notes = measure_spectra(groups, table.config)
    records = [record_of(group, own) for group, own in zip(groups, spectra) if own]
    if not records:
        return Drawing(None, notes)
    values = {"mixup": (
        ["method", "mixup", "value", "rank", "mean", "std", "seeds"],
        [line for record in records for line in _csv_lines(record, metric)],
    )}  # fmt: skip
    figure = draw_mixup(records, metric, table.data_name)
    return Drawing(figure, [*describe_effect(records, metric), *notes], values)


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


@styled
def draw_mixup(records: Sequence[MixupRecord], metric: str, data: str) -> Figure:
    """Return a column per method: the score, rho, the spectrum of all embeddings, and the mean spectrum of the classes."""
    methods = list(dict.fromkeys(record.method for record in records))
    wide = max(7.2, 0.9 + (PANEL_WIDTH + 0.5) * len(methods))
    tall = TITLE_HEIGHT + sum(height + PANEL_GAP for height, _, _ in PANEL_KINDS.values())
    figure = Figure(figsize=(wide, tall))
    for column, method in enumerate(methods):
        own = [record for record in records if record.method == method]
        left, top = 0.85 + (PANEL_WIDTH + 0.5) * column, tall - TITLE_HEIGHT
        for kind, (height, below, beside) in PANEL_KINDS.items():
            axes = figure.add_axes((left / wide, (top - height) / tall, PANEL_WIDTH / wide, height / tall))
            top -= height + PANEL_GAP
            every = [getattr(record, kind) for record in records]
            if kind in ("score", "rho"):
                _draw_bars(axes, own, kind, max(value.mean for value in every), is_named=column == 0)
            else:
                draw_panel(axes, [_line(record, kind) for record in own], common_range(every))
            axes.set(xlabel=below or f"{metric} (%)", ylabel=beside * (column == 0), title=method * (kind == "score"))
    below = "blue: without, orange: with mixup; training embeddings; mean and standard deviation over seeds"
    entitle(figure, f"Manifold mixup: {metric}, spectral decay and spectra on {data}", below)
    return figure


def _line(record: MixupRecord, kind: str) -> SpectrumLine:
    name, colour = ("with mixup", WITH_COLOUR) if record.is_mixed else ("without", WITHOUT_COLOUR)
    return SpectrumLine(record.method, name, getattr(record, kind), colour)


def _draw_bars(axes: Axes, records: Sequence[MixupRecord], kind: str, longest: float, is_named: bool) -> None:
    """Draw a bar for each variant with its deviation and number, and with the names of the variants (`is_named`)."""
    for place, record in enumerate(records):
        value: Estimate = getattr(record, kind)
        axes.barh(place, value.mean, 0.8, color=_line(record, "whole").colour, alpha=0.85, zorder=2)
        axes.errorbar(
            value.mean, place, xerr=value.std, fmt="none", ecolor=INK_COLOUR, elinewidth=1, capsize=2, zorder=3
        )
        end = value.mean + np.nan_to_num(value.std) + 0.02 * longest
        axes.text(end, place, value.text(1 if kind == "score" else 3), va="center", fontsize=8)
    tidy(axes, [_line(record, "whole").name if is_named else "" for record in records])
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=ROUND_STEPS))
    axes.set(xlim=(0, BARS_AXIS_SHARE * longest), ylim=(len(records) - 0.4, -0.6))
