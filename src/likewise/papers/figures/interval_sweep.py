"""Score against the interval between two clusterings of Hierarchical, beside the printed values (hierarchical, figure 2)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from likewise.core.render.figures import COLOURS, Estimate, entitle, tidy
from likewise.core.settings import Train
from likewise.core.settings.overrides import find_argument, has_argument
from likewise.papers.figures.drawing import Drawing, FinishedTable, styled

FIGURE_INCHES = (6.4, 4.6)
"""Width and height of the figure."""

OUR_COLOUR, PRINTED_COLOUR = COLOURS[0], COLOURS[1]
"""Colours of measured and printed values."""


class IntervalPoint(NamedTuple):
    """One interval in steps (None: no groups): the score over seeds and the printed one, in per cent."""

    interval: int | None
    score: Estimate
    printed: float | None


def draw(table: FinishedTable) -> Drawing:
    """Return the sweep, and a note."""
    metric = table.metric
    points = [
        IntervalPoint(interval_of(g.runs[0].job.config), g.score, None if g.printed is None else g.printed.mean)
        for g in table.seed_groups()
    ]
    points.sort(key=lambda point: point.interval or 0)
    if not any(point.interval for point in points):
        return Drawing(None, ["no sweep: no finished training has groups with an interval in steps"])
    values = {"interval_sweep": (
        ["every", metric, "std", "seeds", "printed"],
        [[p.interval or "", *p.score, "" if p.printed is None else p.printed] for p in points],
    )}  # fmt: skip
    return Drawing(draw_intervals(points, metric), [describe_sweep(points, metric)], values)


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


@styled
def draw_intervals(points: Sequence[IntervalPoint], metric: str) -> Figure:
    """Return the score against the interval, ours and printed; dashed: without groups. Whiskers: standard deviations."""
    figure = Figure(figsize=FIGURE_INCHES)
    axes = figure.add_axes((0.12, 0.23, 0.84, 0.6))
    grouped = [point for point in points if point.interval]
    plain = next((point for point in points if not point.interval), None)
    at = [point.interval or 0 for point in grouped]
    score = np.array([point.score[:2] for point in grouped])
    axes.plot(at, score[:, 0], "o-", color=OUR_COLOUR, ms=5, lw=1.8, label="ours", zorder=3)
    axes.errorbar(at, score[:, 0], score[:, 1], fmt="none", ecolor=OUR_COLOUR, elinewidth=1, capsize=2.5, zorder=2)
    printed = [(point.interval, point.printed) for point in grouped if point.printed is not None]
    if printed:
        axes.plot(*zip(*printed), "s-", color=PRINTED_COLOUR, ms=5, lw=1.8, label="printed", zorder=3)
    if plain is not None:
        _draw_level(axes, plain.score.mean, OUR_COLOUR, "ours, without groups")
        if plain.printed is not None:
            _draw_level(axes, plain.printed, PRINTED_COLOUR, "printed, without groups")
    tidy(axes)
    axes.set_xscale("log")
    axes.set_xticks(at, [str(interval) for interval in at])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.08, y=0.12)
    axes.set(xlabel="steps between two clusterings", ylabel=f"{metric} (%)")
    seeds = max(point.score.n for point in points)
    whiskers = "" if seeds == 1 else ", whiskers: standard deviation"
    below = f"mean over {seeds} seed{'s' * (seeds > 1)}{whiskers}; dashed: without groups"
    entitle(figure, f"{metric} against the interval between clusterings", below)
    figure.legend(loc="lower left", bbox_to_anchor=(0.1, 0), ncols=2)
    return figure


def _draw_level(axes: Axes, height: float, colour: str, name: str) -> None:
    """Draw a dashed line over the whole width."""
    axes.axhline(height, color=colour, lw=1.4, ls=(0, (4, 3)), label=name, zorder=1)
