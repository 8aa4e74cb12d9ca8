"""Figures of a calibration: accepted pairs (ROC and DET curves), and predicted against observed shares (reliability)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtri

from likewise.core.render.figures import BETTER_COLOUR, COLOURS, FAINT_COLOUR, INK_COLOUR, SOFT_COLOUR

Curves = Mapping[str, Sequence[float]]
"""The field `curves` of calibration.json."""

CURVE_KINDS = {"pair": ("two images", BETTER_COLOUR), "unknown": ("nearest neighbour", COLOURS[2])}
"""Name of a threshold -> its name in a legend, and its colour."""

DET_TICKS = (0.0001, 0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)
"""Rates marked on the axes of a DET curve."""

MIN_DET_RATE = 5e-5
"""Lower bound of the rates in a DET curve; 1 minus it is the upper bound."""

PANEL_SIDE_INCHES = 3.7
"""Width and height of a panel."""


def draw_roc(curves: Curves, chosen: Mapping[str, float | None] | None = None, axes: Axes | None = None) -> Figure:
    """Return the share of true accepts against the share of errors, on a logarithmic axis; a dot marks a chosen threshold."""
    axes = axes or new_axes()
    for name, (label, colour) in CURVE_KINDS.items():
        errors, right = (np.asarray(curves[f"{name}_{what}"]) for what in ("errors", "true_accepts"))
        some = errors > 0
        axes.plot(errors[some], 100 * right[some], color=colour, lw=1.8, label=label)
        bound = np.asarray(curves[f"{name}_bound"])
        axes.plot(bound[some], 100 * right[some], color=colour, lw=1.1, ls="--")
        if (at := place_of(curves, name, chosen)) is not None:
            axes.plot(max(errors[at], errors[some].min(initial=1.0)), 100 * right[at], "o", color=colour, ms=6)
    axes.plot([], [], color=SOFT_COLOUR, lw=1.1, ls="--", label="bound on new classes")
    axes.set_xscale("log")
    axes.set_ylim(0, 102)
    return finish(axes, "true accepts", "share of errors", "true accepts (%)", "upper left")


def draw_det(curves: Curves, chosen: Mapping[str, float | None] | None = None, axes: Axes | None = None) -> Figure:
    """Return the share of false rejects against the share of errors, both on axes of normal quantiles."""
    axes = axes or new_axes()
    for name, (label, colour) in CURVE_KINDS.items():
        errors = np.asarray(curves[f"{name}_errors"])
        misses = 1 - np.asarray(curves[f"{name}_true_accepts"])
        some = (
            (errors > MIN_DET_RATE)
            & (errors < 1 - MIN_DET_RATE)
            & (misses > MIN_DET_RATE)
            & (misses < 1 - MIN_DET_RATE)
        )
        axes.plot(ndtri(errors[some]), ndtri(misses[some]), color=colour, lw=1.8, label=label)
        if (at := place_of(curves, name, chosen)) is not None and some[at]:
            axes.plot(ndtri(errors[at]), ndtri(misses[at]), "o", color=colour, ms=6)
    for side in (axes.xaxis, axes.yaxis):
        side.set_ticks(ndtri(np.asarray(DET_TICKS)), [f"{100 * rate:g}" for rate in DET_TICKS])
    axes.set_xlim(ndtri(MIN_DET_RATE), ndtri(0.5))
    axes.set_ylim(ndtri(0.005), ndtri(0.995))
    return finish(axes, "false rejects", "errors (%)", "false rejects (%)", "lower left")


def draw_reliability(curves: Curves, axes: Axes | None = None) -> Figure:
    """Return observed against predicted shares of right neighbours, cross-fitted by class; the grey line is equality."""
    axes = axes or new_axes()
    axes.plot([0, 100], [0, 100], color=FAINT_COLOUR, lw=1.2)
    said, seen = (100 * np.asarray(curves[f"reliability_{what}"]) for what in ("predicted", "observed"))
    size = 20 + 300 * np.asarray(curves["reliability_share"])
    axes.plot(said, seen, color=BETTER_COLOUR, lw=1.2)
    axes.scatter(said, seen, s=size, color=BETTER_COLOUR, zorder=3)
    axes.set_xlim(0, 102)
    axes.set_ylim(0, 102)
    error = float(curves["calibration_error"][0])
    return finish(
        axes, f"probability of the neighbour: off by {100 * error:.1f} %", "predicted (%)", "observed, held-out classes (%)", None
    )  # fmt: skip


def draw_calibration(curves: Curves, chosen: Mapping[str, float | None] | None = None) -> Figure:
    """Return the three figures beside each other."""
    figure = Figure(figsize=(3 * PANEL_SIDE_INCHES, PANEL_SIDE_INCHES), facecolor="white", layout="constrained")
    roc, det, reliability = figure.subplots(1, 3)
    draw_roc(curves, chosen, roc)
    draw_det(curves, chosen, det)
    draw_reliability(curves, reliability)
    return figure


def new_axes() -> Axes:
    """Return the axes of a new figure of one panel."""
    return Figure(figsize=(PANEL_SIDE_INCHES, PANEL_SIDE_INCHES), facecolor="white", layout="constrained").add_subplot()


def place_of(curves: Curves, name: str, chosen: Mapping[str, float | None] | None) -> int | None:
    """Return the point of a curve nearest to a chosen threshold; None if there is none."""
    value = (chosen or {}).get(name)
    return None if value is None else int(np.abs(np.asarray(curves[f"{name}_threshold"]) - value).argmin())


def finish(axes: Axes, title: str, x: str, y: str, legend: Literal["upper left", "lower left"] | None) -> Figure:
    """Set texts and style of a panel, and return its figure."""
    axes.set_title(title, fontsize=10, color=INK_COLOUR, loc="left")
    axes.set_xlabel(x, fontsize=9, color=INK_COLOUR)
    axes.set_ylabel(y, fontsize=9, color=INK_COLOUR)
    axes.grid(color=FAINT_COLOUR, lw=0.5)
    axes.tick_params(labelsize=8, colors=INK_COLOUR)
    axes.spines[["top", "right"]].set_visible(False)
    if legend is not None:
        axes.legend(loc=legend, fontsize=8, frameon=False, labelcolor=INK_COLOUR)
    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure
