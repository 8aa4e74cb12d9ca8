"""Recall of wrong labels over the iterations of a training: values of single iterations, and their moving average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.render.figures import BETTER_COLOUR, FAINT_COLOUR, INK_COLOUR, SOFT_COLOUR, WORSE_COLOUR, shorten

PANEL_WIDTH, PANEL_HEIGHT = 3.9, 2.5
"""Inches: size of a panel."""

MAX_TITLE_LETTERS = 50
"""Largest length of the title of a panel."""


class NoiseRecall(NamedTuple):
    """Recall of wrong labels of one training, at every logged step: value, moving average, and moving share of flagged labels.

    A random choice of as many labels has the flagged share as its recall.
    """

    row: str
    column: str
    step: Int[np.ndarray, "T"]
    recall: Float[np.ndarray, "T"]
    average: Float[np.ndarray, "T"]
    flagged: Float[np.ndarray, "T"]


def draw_noise_recall(trainings: Sequence[NoiseRecall]) -> Figure:
    """Return a figure with a row of panels for every noise model and a column for every loss that is thresholded.

    Points are the values of the first training of a panel; every training has a line of moving averages.
    """
    rows, columns = (list(dict.fromkeys(getattr(one, side) for one in trainings)) for side in ("row", "column"))
    figure = Figure(
        figsize=(0.4 + PANEL_WIDTH * len(columns), 0.55 + PANEL_HEIGHT * len(rows)),
        facecolor="white",
        layout="constrained",
    )
    panels = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    for line, row in enumerate(rows):
        for place, column in enumerate(columns):
            axes, here = panels[line, place], [one for one in trainings if (one.row, one.column) == (row, column)]
            _draw_panel(axes, here)
            title = shorten(", ".join(filter(None, (column, row))), MAX_TITLE_LETTERS)
            axes.set_title(title, fontsize=10, color=INK_COLOUR, loc="left", parse_math=False)
            if line == len(rows) - 1:
                axes.set_xlabel("iteration", fontsize=9, color=INK_COLOUR)
            if place == 0:
                axes.set_ylabel("recall of wrong labels (%)", fontsize=9, color=INK_COLOUR)
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=3, fontsize=9, frameon=False, markerscale=2,
        labelcolor=INK_COLOUR,
    )  # fmt: skip
    return figure


def _draw_panel(axes: Axes, trainings: Sequence[NoiseRecall]) -> None:
    """Draw the values of the first training as points, and the averages of all as lines."""
    for one in trainings[:1]:
        axes.plot(
            one.step, 100 * one.recall, ".", color=BETTER_COLOUR, ms=4, alpha=0.4, mec="none", label="one logged value"
        )
    for one in trainings:
        names = ("moving average", "share of flagged labels: recall by chance") if one is trainings[0] else ("_", "_")
        axes.plot(one.step, 100 * one.average, color=WORSE_COLOUR, lw=1.8, label=names[0])
        axes.plot(one.step, 100 * one.flagged, color=SOFT_COLOUR, lw=1.2, ls="--", label=names[1])
    axes.set_ylim(0, 102)
    axes.margins(x=0.01)
    axes.grid(color=FAINT_COLOUR, lw=0.5)
    axes.tick_params(labelsize=8, colors=INK_COLOUR)
    axes.spines[["top", "right"]].set_visible(False)
