"""Singular values by rank, one panel per method, one line per variant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.render.figures import INK_COLOUR, entitle, tidy

MAX_ROW_PANELS = 3
"""Largest number of panels in a row."""

PANEL_WIDTH, PANEL_HEIGHT = 2.7, 2.3
"""Inches: size of a panel without its labels."""


class SpectrumLine(NamedTuple):
    """One line: its panel and name, the singular values by rank, largest first, and its colour."""

    panel: str
    name: str
    values: Float[np.ndarray, "R"]
    colour: str


def draw_spectra(lines: Sequence[SpectrumLine], data: str) -> Figure:
    """Return one panel per method with a logarithmic axis that all panels share; ranks whose value is 0 are not drawn."""
    panels = list(dict.fromkeys(line.panel for line in lines))
    beside = min(MAX_ROW_PANELS, len(panels))
    rows = math.ceil(len(panels) / beside)
    wide, tall = max(7.0, 0.5 + (PANEL_WIDTH + 0.65) * beside), 1.15 + (PANEL_HEIGHT + 0.75) * rows
    figure = Figure(figsize=(wide, tall), facecolor="white")
    ends = common_range([line.values for line in lines])
    for place, panel in enumerate(panels):
        row, column = divmod(place, beside)
        left, low = 0.75 + (PANEL_WIDTH + 0.6) * column, tall - 1.05 - PANEL_HEIGHT - (PANEL_HEIGHT + 0.75) * row
        axes = figure.add_axes((left / wide, low / tall, PANEL_WIDTH / wide, PANEL_HEIGHT / tall))
        draw_panel(axes, [line for line in lines if line.panel == panel], ends)
        axes.set_title(panel, fontsize=10, color=INK_COLOUR, loc="left", parse_math=False)
        axes.set_xlabel("rank", fontsize=9, color=INK_COLOUR)
        if column == 0:
            axes.set_ylabel("singular value, share of the sum", fontsize=9, color=INK_COLOUR)
    keys = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels())))
    figure.legend(
        keys.values(), keys.keys(), loc="lower left", bbox_to_anchor=(0.65 / wide, 0), ncols=len(keys), fontsize=9,
        frameon=False, labelcolor=INK_COLOUR,
    )  # fmt: skip
    entitle(
        figure, f"Singular values of the classes on {data}", "training embeddings; mean over classes and seeds, by rank"
    )
    return figure


def draw_panel(axes: Axes, lines: Sequence[SpectrumLine], ends: tuple[float, float]) -> None:
    """Draw spectra as lines with a logarithmic axis; values of 0 are left out."""
    for line in lines:
        rank = np.arange(1, len(line.values) + 1)
        some = line.values > 0
        axes.plot(rank[some], line.values[some], color=line.colour, lw=1.8, label=line.name)
    tidy(axes)
    axes.set_yscale("log")
    axes.tick_params(which="minor", length=0)
    axes.set_ylim(*ends)
    axes.set_xlim(0.5, None)


def common_range(spectra: Sequence[Float[np.ndarray, "R"]]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis for all positive values, with some room."""
    values = np.concatenate([one[one > 0] for one in spectra])
    return 0.8 * float(values.min(initial=1.0)), 1.25 * float(values.max(initial=1e-3))
