"""Score against the interval between two clusterings of Hierarchical, beside the printed values (hierarchical, figure 2)."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from likewise.core.files import write_csv
from likewise.core.render.figures import write_figure
from likewise.core.settings import Bench, Train
from likewise.core.settings.overrides import find_argument, has_argument
from likewise.papers.experiments.figures._groups import seed_groups
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.papers.render.interval_sweep import IntervalPoint, draw_intervals


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the sweep as a PNG, and a note. Writes interval_sweep.csv with one line for each interval."""
    metric, groups = seed_groups(grid, sheet, done)
    points = [
        IntervalPoint(interval_of(g.runs[0].job.config), g.score, None if g.printed is None else g.printed.mean)
        for g in groups
    ]
    points.sort(key=lambda point: point.interval or 0)
    if not any(point.interval for point in points):
        return None, ["no sweep: no finished training has groups with an interval in steps"]
    write_csv(
        sheet.folder / "interval_sweep.csv", ["every", metric, "std", "seeds", "printed"],
        [[p.interval or "", *p.score, "" if p.printed is None else p.printed] for p in points],
    )  # fmt: skip
    figure = write_figure(draw_intervals(points, metric), sheet.folder / "interval_sweep.png")
    return figure, [describe_sweep(points, metric)]


def interval_of(config: Train) -> int | None:
    """Return the steps between two clusterings; None if the loss has none, or an interval in epochs."""
    every = find_argument(config, "loss.every") if has_argument(config, "loss.every") else ast.Constant(None)
    return every.value if isinstance(every, ast.Constant) and isinstance(every.value, int) else None


def describe_sweep(points: Sequence[IntervalPoint], metric: str) -> str:
    """Return a sentence: the lowest and highest mean over the intervals, and the mean without groups."""
    grouped = sorted((point.score.mean, point.interval) for point in points if point.interval)
    (low, at_low), (high, at_high) = grouped[0], grouped[-1]
    plain = next((point.score for point in points if not point.interval), None)
    without = "" if plain is None else f"; without groups {plain.text(1)}"
    return f"{metric} with groups: {low:.1f} (every {at_low} steps) to {high:.1f} (every {at_high}){without}."
