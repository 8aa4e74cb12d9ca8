"""Recall of wrong labels over a training (ProcSim, figure 6): the share of a batch's wrong labels that Otsu's split flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.render.figures import (
    BETTER_COLOUR,
    SOFT_COLOUR,
    WORSE_COLOUR,
    shorten,
)
from likewise.papers.benchmark_table import label
from likewise.papers.figures.drawing import Drawing, FinishedTable, dress, styled
from likewise.papers.grid import place_of

WINDOW_STEPS = 100
"""Iterations of the moving average, as printed."""

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


def draw(table: FinishedTable) -> Drawing:
    """Return the recall of every training over its iterations, and notes."""
    found, lines, coarse = [], [], []
    for t in table.done:
        row, column = place_of(table.grid, t.cell.names)
        one = recall_of(t.job.run.read_log(), label(column), label(row))
        if one is None:
            continue
        found.append(one)
        spacing = int(np.diff(one.step).max(initial=1))
        coarse += [spacing] if spacing > 1 else []
        values = zip(*(values.tolist() for values in (one.step, one.recall, one.average, one.flagged)))
        lines += [[*t.cell.names.values(), *line] for line in values]
    if not found:
        reason = "no training of this table has both a confidence and injected label noise, so there is no recall"
        return Drawing(None, [reason])
    values = {"noise_recall": ([*table.grid.axes, "step", "recall", "average", "flagged"], lines)}
    notes = [
        f"Recall: share of the wrong labels in a batch that are flagged; moving average over {WINDOW_STEPS} iterations."
    ]
    if coarse:
        notes.append(
            f"The log of {len(coarse)} trainings has means of {max(coarse)} iterations, not single ones: they were trained with "
            "another log_every; the moving average is the same up to its ends."
        )
    places = dict.fromkeys((one.column, one.row) for one in found)
    ends = [
        f"{label(place)} {100 * np.mean([o.average[-1] for o in found if (o.column, o.row) == place]):.0f} % (by chance "
        f"{100 * np.mean([o.flagged[-1] for o in found if (o.column, o.row) == place]):.0f} %)"
        for place in places
    ]
    notes.append(f"At the end: {'; '.join(ends)}.")
    return Drawing(draw_noise_recall(found), notes, values)


def recall_of(lines: Sequence[dict], row: str, column: str) -> NoiseRecall | None:
    """Return the recall over the iterations of a log; None if no line has one."""
    logged = [line for line in lines if "recall" in line.get("sample_weights", {})]
    if not logged:
        return None
    step = np.array([line["step"] for line in logged])
    recall, flagged = (
        np.array([line["sample_weights"].get(name, np.nan) for line in logged])
        for name in ("recall", "suspected share")
    )
    return NoiseRecall(row, column, step, recall, moving_average(step, recall), moving_average(step, flagged))


def moving_average(
    step: Int[np.ndarray, "T"], value: Float[np.ndarray, "T"], window: int = WINDOW_STEPS
) -> Float[np.ndarray, "T"]:
    """Return for every step the mean over the last `window` steps, or as many as there are.

    Formula: at step s, the mean of the values at steps above s - window, each weighted by the steps since the line before it
    """
    weight = np.diff(step, prepend=0).astype(float)
    total, mass = (np.concatenate([[0.0], np.cumsum(x)]) for x in (weight * value, weight))
    first = np.searchsorted(step, step - window, side="right")
    last = np.arange(1, len(step) + 1)
    return (total[last] - total[first]) / (mass[last] - mass[first])


@styled
def draw_noise_recall(trainings: Sequence[NoiseRecall]) -> Figure:
    """Return a figure with a row of panels for every noise model and a column for every loss that is thresholded.

    Points are the values of the first training of a panel; every training has a line of moving averages.
    """
    rows, columns = (list(dict.fromkeys(getattr(one, side) for one in trainings)) for side in ("row", "column"))
    size = (0.4 + PANEL_WIDTH * len(columns), 0.55 + PANEL_HEIGHT * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
    for line, row in enumerate(rows):
        for place, column in enumerate(columns):
            axes, here = panels[line, place], [one for one in trainings if (one.row, one.column) == (row, column)]
            _draw_panel(axes, here)
            title = shorten(", ".join(filter(None, (column, row))), MAX_TITLE_LETTERS)
            below = "iteration" if row == rows[-1] else ""
            dress(axes, title, below, "recall of wrong labels (%)" if place == 0 else "")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=3, markerscale=2,
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
