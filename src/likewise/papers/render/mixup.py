"""Study of manifold mixup: score and spectral decay as bars, spectra as lines, one column per method."""

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
from likewise.papers.render.spectra import SpectrumLine, common_range, draw_panel

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


def draw_mixup(records: Sequence[MixupRecord], metric: str, data: str) -> Figure:
    """Return a column per method: the score, rho, the spectrum of all embeddings, and the mean spectrum of the classes."""
    methods = list(dict.fromkeys(record.method for record in records))
    wide = max(7.2, 0.9 + (PANEL_WIDTH + 0.5) * len(methods))
    tall = TITLE_HEIGHT + sum(height + PANEL_GAP for height, _, _ in PANEL_KINDS.values())
    figure = Figure(figsize=(wide, tall), facecolor="white")
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
            axes.set_xlabel(below or f"{metric} (%)", fontsize=9, color=INK_COLOUR)
            axes.set_ylabel(beside * (column == 0), fontsize=9, color=INK_COLOUR)
            axes.set_title(method * (kind == "score"), fontsize=10, color=INK_COLOUR, loc="left", parse_math=False)
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
        axes.text(end, place, value.text(1 if kind == "score" else 3), va="center", fontsize=8, color=INK_COLOUR)
    tidy(axes, [_line(record, "whole").name if is_named else "" for record in records])
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=ROUND_STEPS))
    axes.set(xlim=(0, BARS_AXIS_SHARE * longest), ylim=(len(records) - 0.4, -0.6))
