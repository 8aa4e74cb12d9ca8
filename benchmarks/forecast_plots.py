"""Pictures of the benchmark of forecasts: forecast against realised gains, and the gain against the decisions of a review."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from likewise.core.render.figures import COLOURS, SOFT_COLOUR
from likewise.labels.review_forecast import METRICS

SHOWN_PLANS = {
    "suspicion": "suspicion, one by one", "suspicion, groups": "suspicion, in groups", "gain, groups": "gain, in groups",
    "gain, groups, updated": "gain, in groups, updated",
}  # fmt: skip


def draw_forecasts(cells: Mapping[str, dict]) -> Figure:
    """Return a panel per metric: a dot per cell, its 90 % interval, and the line on which both gains are equal."""
    figure = Figure(figsize=(8, 3.9), facecolor="white", layout="constrained")
    sets = list(dict.fromkeys(name.split(",")[0] for name in cells))
    for place, metric in enumerate(METRICS):
        axes = figure.add_subplot(1, len(METRICS), place + 1)
        for number, data in enumerate(sets):
            mine = [one for name, one in cells.items() if name.split(",")[0] == data and not one["reason"]]
            lines = [one["points"][-1][metric] for one in mine]
            real, mean, low, high = (
                100 * np.array([line[key] for line in lines]) for key in ("real", "mean", "low", "high")
            )
            colour = COLOURS[number % len(COLOURS)]
            axes.errorbar(
                real, mean, [mean - low, high - mean], fmt="o", ms=3, lw=0.7, color=colour, alpha=0.7, label=data
            )
        ends = axes.get_xlim()
        axes.plot(ends, ends, color=SOFT_COLOUR, lw=1.2, zorder=0)
        axes.set_xlabel(f"realised gain in {metric}, points")
        axes.set_ylabel("forecast, with 90 % interval")
        if not place:
            axes.legend(fontsize=8, frameon=False, loc="upper left")
    return figure


def draw_orders(cells: Mapping[str, dict]) -> Figure:
    """Return the mean share of the gain in MAP@R after a share of the decisions that one by one would need."""
    figure = Figure(figsize=(5.6, 3.9), facecolor="white", layout="constrained")
    axes, at = figure.add_subplot(), np.linspace(0, 1, 101)
    used = [one for one in cells.values() if one["decisions"]]
    for colour, (plan, name) in zip(COLOURS, SHOWN_PLANS.items() if used else ()):
        curves = []
        for one in used:
            curve = one["curves"][plan]
            share = (np.array(curve["mapr"]) - curve["mapr"][0]) / one["gain"]
            curves.append(np.interp(at, np.array(curve["decisions"]) / one["queue"], share))
        axes.plot(100 * at, 100 * np.mean(curves, 0), color=colour, lw=1.8, label=name)
    axes.axhline(90, color=SOFT_COLOUR, lw=1)
    axes.set_xlabel("decisions, % of those of a review one by one")
    axes.set_ylabel("gain in MAP@R, % of that of the whole review")
    if used:
        axes.legend(fontsize=8, frameon=False, loc="lower right")
    axes.set_title(f"mean over {len(used)} cells", fontsize=9, loc="left")
    return figure
