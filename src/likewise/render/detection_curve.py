"""Detection curves: share of wrong labels found against share of samples inspected, one panel per noise model."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from likewise.render.figures import COLOURS, FAINT_COLOUR, INK_COLOUR

LINE_STYLES = ("-", "--", ":")
"""Line styles, one for each round through the colours."""

MAX_ROW_PANELS = 4
"""Largest number of panels in a row."""

LEGEND_LETTERS = 38
"""Largest length of a line of the legend; longer names are wrapped."""


class Curve(NamedTuple):
    """One method under one noise model: share `found` at share inspected (`at`), mean over seeds; `about`: legend text."""

    panel: str
    name: str
    at: Float[np.ndarray, "T"]
    found: Float[np.ndarray, "T"]
    about: str = ""


def draw_detection(curves: Sequence[Curve]) -> Figure:
    """Return a figure with one panel per noise model; the grey line is inspection in random order. Legends are below."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    names = list(dict.fromkeys(curve.name for curve in curves))
    beside = min(MAX_ROW_PANELS, len(panels))
    rows = math.ceil(len(panels) / beside)
    legend_lines = max(sum(_legend_text(c).count("\n") + 1 for c in curves if c.panel == panel) for panel in panels)
    figure = Figure(
        figsize=(0.6 + 3.4 * beside, rows * (3.6 + 0.18 * legend_lines)), facecolor="white", layout="constrained"
    )
    below = ScaledTranslation(0, -0.45, figure.dpi_scale_trans)  # inches, for the ticks and the label of the axis
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, beside, place + 1)
        axes.plot([0, 100], [0, 100], color=FAINT_COLOUR, lw=1.2)
        for curve in (c for c in curves if c.panel == panel):
            chosen = names.index(curve.name)
            axes.plot(
                100 * curve.at, 100 * curve.found, color=COLOURS[chosen % len(COLOURS)],
                ls=LINE_STYLES[chosen // len(COLOURS) % len(LINE_STYLES)], lw=1.8, label=_legend_text(curve),
            )  # fmt: skip
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 102)
        axes.set_title(panel, fontsize=10, color=INK_COLOUR, loc="left", parse_math=False)
        axes.set_xlabel("samples inspected (%)", fontsize=9, color=INK_COLOUR)
        if place % beside == 0:
            axes.set_ylabel("wrong labels found (%)", fontsize=9, color=INK_COLOUR)
        axes.grid(color=FAINT_COLOUR, lw=0.5)
        axes.tick_params(labelsize=8, colors=INK_COLOUR)
        axes.spines[["top", "right"]].set_visible(False)
        legend = axes.legend(
            loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=axes.transAxes + below, borderaxespad=0, fontsize=8,
            frameon=False,
        )  # fmt: skip
        for text in legend.get_texts():
            text.set(parse_math=False, color=INK_COLOUR)
    return figure


def _legend_text(curve: Curve) -> str:
    return textwrap.fill(f"{curve.name} {curve.about}".strip(), LEGEND_LETTERS)
