"""Detection curves: share of wrong labels found against share of samples inspected, a panel per method and noise model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.render.figures import COLOURS, FAINT_COLOUR, INK_COLOUR, SOFT_COLOUR, shorten

PANEL_WIDTH, PANEL_HEIGHT = 3.3, 2.9
"""Inches: size of a panel."""

MAX_TITLE_LETTERS = 36
"""Largest length of a line of the title of a panel."""


class Curve(NamedTuple):
    """One order of inspection of one method and noise model: share `found` at share inspected (`at`), mean over seeds.

    `about`: legend text beside the name. `classes`: the curves of single test classes, drawn thin; `found` is their mean.
    `dashed_of`: name of the curve whose colour this one has; it is drawn dashed.
    """

    row: str
    column: str
    name: str
    at: Float[np.ndarray, "T"]
    found: Float[np.ndarray, "T"]
    about: str = ""
    classes: Sequence[Float[np.ndarray, "T"]] = ()
    dashed_of: str = ""


def draw_detection(curves: Sequence[Curve]) -> Figure:
    """Return a figure with a row of panels per method and a column per noise model.

    The grey line is inspection in random order. Legends are in the lower right corner, which no better order reaches.
    """
    rows, columns = (list(dict.fromkeys(getattr(curve, side) for curve in curves)) for side in ("row", "column"))
    names = list(dict.fromkeys(curve.dashed_of or curve.name for curve in curves))
    figure = Figure(
        figsize=(0.5 + PANEL_WIDTH * len(columns), 0.3 + PANEL_HEIGHT * len(rows)),
        facecolor="white",
        layout="constrained",
    )
    for line, row in enumerate(rows):
        for place, column in enumerate(columns):
            axes = figure.add_subplot(len(rows), len(columns), line * len(columns) + place + 1)
            axes.plot([0, 100], [0, 100], color=SOFT_COLOUR, lw=1.2, label="random order")
            for curve in (c for c in curves if (c.row, c.column) == (row, column)):
                _draw_curve(axes, curve, COLOURS[names.index(curve.dashed_of or curve.name) % len(COLOURS)])
            axes.set_title(_title(row, column), fontsize=10, color=INK_COLOUR, loc="left", parse_math=False)
            _tidy(axes, is_last=line == len(rows) - 1, is_first=place == 0)
    return figure


def _title(row: str, column: str) -> str:
    """Return the names of a panel in one line if they fit, otherwise each in a line of its own."""
    whole = ", ".join(filter(None, (row, column)))
    lines = [whole] if len(whole) <= MAX_TITLE_LETTERS else filter(None, (row, column))
    return "\n".join(shorten(line, MAX_TITLE_LETTERS) for line in lines)


def _draw_curve(axes: Axes, curve: Curve, colour: str) -> None:
    """Draw one curve, and below it the thin curves of its classes."""
    for found in curve.classes:
        axes.plot(100 * curve.at, 100 * found, color=colour, lw=0.6, alpha=0.4)
    text = f"{curve.name} {curve.about}".strip()
    style, width = ("--", 1.4) if curve.dashed_of else ("-", 1.9)
    axes.plot(100 * curve.at, 100 * curve.found, color=colour, ls=style, lw=width, label=text, zorder=3)


def _tidy(axes: Axes, is_last: bool, is_first: bool) -> None:
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 102)
    if is_last:
        axes.set_xlabel("samples inspected (%)", fontsize=9, color=INK_COLOUR)
    if is_first:
        axes.set_ylabel("wrong labels found (%)", fontsize=9, color=INK_COLOUR)
    axes.grid(color=FAINT_COLOUR, lw=0.5)
    axes.tick_params(labelsize=8, colors=INK_COLOUR)
    axes.spines[["top", "right"]].set_visible(False)
    lines, texts = axes.get_legend_handles_labels()
    legend = axes.legend(
        [*lines[1:], lines[0]], [*texts[1:], texts[0]], loc="lower right", fontsize=7.5, frameon=True, framealpha=0.85,
        edgecolor="none", borderaxespad=0.2, handlelength=1.4, labelspacing=0.25,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set(parse_math=False, color=INK_COLOUR)
