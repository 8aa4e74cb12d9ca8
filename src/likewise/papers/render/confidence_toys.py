"""Toys of confidence: losses of a mixture of two Gaussians, and the distribution of the confidences computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.render.figures import BETTER_COLOUR, FAINT_COLOUR, INK_COLOUR, SOFT_COLOUR, WORSE_COLOUR

HISTOGRAM_BINS = 40
"""Number of bins of a histogram."""

PANEL_WIDTH, PANEL_HEIGHT = 3.5, 2.6
"""Inches: size of a panel."""

LINE_STYLES = ("-", "--")
"""Line styles of the confidences in the panel of the losses."""


class ToyConfidence(NamedTuple):
    """One confidence of a toy: its name and threshold, the confidence of each sample, and its curve over losses."""

    name: str
    threshold: float
    confidence: Float[np.ndarray, "N"]
    curve_loss: Float[np.ndarray, "T"]
    curve_confidence: Float[np.ndarray, "T"]


class Toy(NamedTuple):
    """One toy: losses of samples, which of them have wrong labels, and the confidences that are compared."""

    name: str
    loss: Float[np.ndarray, "N"]
    wrong: Bool[np.ndarray, "N"]
    ways: Sequence[ToyConfidence]


def draw_toys(toys: Sequence[Toy]) -> Figure:
    """Return a figure with a row per toy: its losses with the confidence over them, then a histogram of each confidence."""
    columns = 1 + max(len(toy.ways) for toy in toys)
    figure = Figure(
        figsize=(PANEL_WIDTH * columns + 0.3, PANEL_HEIGHT * len(toys) + 0.45), facecolor="white", layout="constrained"
    )
    for line, toy in enumerate(toys):
        _draw_losses(figure.add_subplot(len(toys), columns, line * columns + 1), toy, is_first=line == 0)
        highest = max(1.0, max(float(way.confidence.max()) for way in toy.ways))
        for place, way in enumerate(toy.ways):
            axes = figure.add_subplot(len(toys), columns, line * columns + 2 + place)
            edges = np.linspace(0, highest, HISTOGRAM_BINS + 1)
            _draw_histogram(axes, way.confidence, toy.wrong, edges)
            axes.axvline(1, color=SOFT_COLOUR, lw=0.8, ls=":")
            _tidy(axes, way.name, "confidence", "share (%)")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=5, fontsize=9, frameon=False,
        labelcolor=INK_COLOUR,
    )  # fmt: skip
    return figure


def _draw_losses(axes: Axes, toy: Toy, is_first: bool) -> None:
    """Draw the histogram of the losses, and on the right axis every confidence as a function of the loss."""
    edges = np.linspace(float(toy.loss.min()), float(toy.loss.max()), HISTOGRAM_BINS + 1)
    _draw_histogram(axes, toy.loss, toy.wrong, edges)
    over = axes.twinx()
    for way, style in zip(toy.ways, LINE_STYLES * len(toy.ways)):
        over.plot(way.curve_loss, way.curve_confidence, color=INK_COLOUR, lw=1.4, ls=style)
        axes.axvline(way.threshold, color=SOFT_COLOUR, lw=1, ls=style)
        if is_first:
            axes.plot([], [], color=INK_COLOUR, lw=1.4, ls=style, label=f"confidence, {way.name}")
    if is_first:
        axes.plot([], [], color=SOFT_COLOUR, lw=1, label="threshold τ")
    over.set_ylim(0, 1.08 * max(1.0, max(float(way.curve_confidence.max()) for way in toy.ways)))
    over.set_ylabel("confidence", fontsize=9, color=INK_COLOUR)
    over.tick_params(labelsize=8, colors=INK_COLOUR)
    over.spines[["top", "left"]].set_visible(False)
    _tidy(axes, toy.name, "loss", "share (%)")


def _draw_histogram(
    axes: Axes, value: Float[np.ndarray, "N"], wrong: Bool[np.ndarray, "N"], edges: Float[np.ndarray, "B"]
) -> None:
    """Draw the right and the wrong labels as overlaid histograms, each in per cent of its own labels."""
    for some, colour, name in ((~wrong, BETTER_COLOUR, "right labels"), (wrong, WORSE_COLOUR, "wrong labels")):
        share = np.full(some.sum(), 100 / max(1, some.sum()))
        axes.hist(value[some], edges.tolist(), weights=share, color=colour, alpha=0.6, label=name)


def _tidy(axes: Axes, title: str, below: str, beside: str) -> None:
    axes.set_title(title, fontsize=10, color=INK_COLOUR, loc="left")
    axes.set_xlabel(below, fontsize=9, color=INK_COLOUR)
    axes.set_ylabel(beside, fontsize=9, color=INK_COLOUR)
    axes.tick_params(labelsize=8, colors=INK_COLOUR)
    axes.grid(axis="y", color=FAINT_COLOUR, lw=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
