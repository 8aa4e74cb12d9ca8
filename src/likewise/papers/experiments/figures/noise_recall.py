"""Recall of wrong labels over a training (ProcSim, figure 6): the share of a batch's wrong labels that Otsu's split flags."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from likewise.core.files import write_csv
from likewise.core.render.figures import write_figure
from likewise.core.settings import Bench
from likewise.papers.experiments.grid_types import Grid, place_of
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable, label
from likewise.papers.render.noise_recall import NoiseRecall, draw_noise_recall

WINDOW_STEPS = 100
"""Iterations of the moving average, as printed."""


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the recall of every training over its iterations as a PNG, and notes. Writes noise_recall.csv."""
    found, lines, coarse = [], [], []
    for t in done:
        row, column = place_of(grid, t.cell.names)
        one = recall_of(t.job.run.read_log(), label(column), label(row))
        if one is None:
            continue
        found.append(one)
        spacing = int(np.diff(one.step).max(initial=1))
        coarse += [spacing] if spacing > 1 else []
        values = zip(*(values.tolist() for values in (one.step, one.recall, one.average, one.flagged)))
        lines += [[*t.cell.names.values(), *line] for line in values]
    if not found:
        return None, ["no training of this table has both a confidence and injected label noise, so there is no recall"]
    write_csv(sheet.folder / "noise_recall.csv", [*grid.axes, "step", "recall", "average", "flagged"], lines)
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
    return write_figure(draw_noise_recall(found), sheet.folder / "noise_recall.png"), notes


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
