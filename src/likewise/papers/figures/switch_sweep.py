"""Score and spectral decay against p_switch, the probability of rho-regularisation (training strategies, figure 8)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.render.figures import COLOURS, Estimate, entitle, tidy
from likewise.papers.benchmark_table import label
from likewise.papers.figures.drawing import Drawing, FinishedTable, styled
from likewise.papers.figures.spectra import measure_spectra, rho_of

SWITCH_AXIS = "p_switch"
"""The axis of the grid whose names are the probabilities; 0 is training without regularisation."""

FIGURE_WIDTH, PANEL_HEIGHT = 9.0, 3.1
"""Inches: width of the figure, and height of its panels."""

MAX_LEGEND_COLUMNS = 4
"""Number of entries in a row of the legend."""


class SweepPoint(NamedTuple):
    """One probability on one line: score (in per cent) and spectral decay over seeds. Probability 0: no regularisation."""

    line: str
    probability: float
    score: Estimate
    rho: Estimate


def draw(table: FinishedTable) -> Drawing:
    """Return the sweep, and a note for every line."""
    if SWITCH_AXIS not in table.grid.axes:
        return Drawing(None, [f"no sweep: the grid needs an axis {SWITCH_AXIS}, whose names are probabilities"])
    metric, groups = table.metric, table.seed_groups()
    spectra, notes = measure_spectra(groups, table.config)
    points = []
    for group, own in zip(groups, spectra):
        line = label([name for axis, name in group.names.items() if axis not in (SWITCH_AXIS, "seed")])
        points.append(SweepPoint(line, float(group.names[SWITCH_AXIS]), group.score, rho_of(own)))
    points.sort(key=lambda point: point.probability)
    values = {"switch_sweep": (
        ["line", SWITCH_AXIS, metric, "std", "rho", "rho_std", "seeds"],
        [[p.line, p.probability, p.score.mean, p.score.std, p.rho.mean, p.rho.std, p.score.n] for p in points],
    )}  # fmt: skip
    lines = dict.fromkeys(point.line for point in points)
    said = [describe_line([point for point in points if point.line == line], metric) for line in lines]
    return Drawing(draw_sweep(points, metric, table.data_name), [*filter(None, said), *notes], values)


def describe_line(points: Sequence[SweepPoint], metric: str) -> str:
    """Return a sentence: score and rho without regularisation, and at the probability with the best mean; "" for one point."""
    plain = next((point for point in points if point.probability == 0), None)
    switched = [point for point in points if point.probability > 0]
    if plain is None or not switched:
        return ""
    best = max(switched, key=lambda point: point.score.mean)
    above = sum(point.score.mean > plain.score.mean for point in switched)
    rho = "" if np.isnan(plain.rho.mean) else f", rho {plain.rho.text(3)} and {best.rho.text(3)}"
    return (
        f"{points[0].line + ': ' if points[0].line else ''}{metric} without regularisation {plain.score.text(1)}, best "
        f"{best.score.text(1)} at p_switch {best.probability:g}{rho} (mean ± standard deviation over seeds). {above} of "
        f"{len(switched)} probabilities have a higher mean than without; the best of several is biased upwards."
    )


@styled
def draw_sweep(points: Sequence[SweepPoint], metric: str, data: str) -> Figure:
    """Return two panels: the score and rho against p_switch; dashed: without regularisation. Whiskers: standard deviations."""
    names = list(dict.fromkeys(point.line for point in points))
    legend_height = 0.2 + 0.2 * math.ceil(2 * len(names) / MAX_LEGEND_COLUMNS)
    tall = PANEL_HEIGHT + 1.4 + legend_height
    figure = Figure(figsize=(FIGURE_WIDTH, tall))
    low, high = (0.6 + legend_height) / tall, PANEL_HEIGHT / tall
    for place, kind, axis_title in ((0, "score", f"{metric} (%)"), (1, "rho", "spectral decay ρ, training samples")):
        axes = figure.add_axes(((0.75 + 4.4 * place) / FIGURE_WIDTH, low, 3.6 / FIGURE_WIDTH, high))
        for number, name in enumerate(names):
            _draw_line(axes, [p for p in points if p.line == name], kind, COLOURS[number % len(COLOURS)], name)
        tidy(axes)
        axes.set_xlim(0, None)
        axes.set(xlabel="probability of a switch, p_switch", ylabel=axis_title)
    seeds = sorted({point.score.n for point in points})
    counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    entitle(
        figure, f"{metric} and spectral decay against p_switch on {data}",
        f"mean over {counted} seed{'s' * (counted != '1')}, whiskers: standard deviation; dashed: without regularisation",
    )  # fmt: skip
    handles, place = figure.axes[0].get_legend_handles_labels(), (0.6 / FIGURE_WIDTH, 0)
    figure.legend(*handles, loc="lower left", bbox_to_anchor=place, ncols=MAX_LEGEND_COLUMNS)
    return figure


def _draw_line(axes: Axes, points: Sequence[SweepPoint], kind: str, colour: str, name: str) -> None:
    """Draw the points with p_switch above 0 as a line with whiskers, and the one at 0 as a dashed line."""
    switched = [(p.probability, *getattr(p, kind)[:2]) for p in points if p.probability > 0]
    if switched:
        at, mean, std = np.array(switched).T
        axes.plot(at, mean, "o-", color=colour, ms=4.5, lw=1.8, label=name or "with regularisation", zorder=3)
        axes.errorbar(at, mean, std, fmt="none", ecolor=colour, elinewidth=1, capsize=2.5, alpha=0.7, zorder=2)
    for point in (p for p in points if p.probability == 0):
        without: Estimate = getattr(point, kind)
        axes.axhline(
            without.mean, color=colour, lw=1.4, ls=(0, (4, 3)), label=f"{name}, without".lstrip(", "), zorder=1
        )
        if not np.isnan(without.std):
            axes.axhspan(
                without.mean - without.std, without.mean + without.std, color=colour, alpha=0.09, lw=0, zorder=0
            )
