"""Figures that a grid names in `then`. `FIGURE_KINDS` is the registry.

A figure is a function that gets a `FinishedTable` and returns a `Drawing` (`drawing.py`), from which NAME.png and NAME.csv, the
values of the figure, are written. What it computes from a run is stored in the folder of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class FigureKind(NamedTuple):
    """A kind of figure: its title, its function in this package, and whether it is above the table (`leads`) or below it."""

    title: str
    function: str
    leads: bool = True


FIGURE_KINDS = {
    "overlap": FigureKind("Test classes at which networks fail", "overlap.draw", leads=False),
    "detection": FigureKind("Wrong labels found", "detection.draw"),
    "noise_recall": FigureKind("Recall of wrong labels", "noise_recall.draw"),
    "published_bars": FigureKind("Published R@1 by method", "published_bars.draw"),
    "toy_bounds": FigureKind("Confidences with two lower bounds", "confidence_toys.draw_bounds"),
    "toy_thresholds": FigureKind("Confidences with two thresholds", "confidence_toys.draw_thresholds"),
    "switch_sweep": FigureKind("Probability of rho-regularisation", "switch_sweep.draw"),
    "regularised_bars": FigureKind("With and without rho-regularisation", "regularised_bars.draw"),
    "decay_recall": FigureKind("Spectral decay of training embeddings against the test score", "decay_recall.draw"),
    "class_spectra": FigureKind("Singular values of the classes", "spectra.draw"),
    "mixup": FigureKind("Manifold mixup", "mixup.draw"),
    "interval_sweep": FigureKind("Interval between clusterings", "interval_sweep.draw"),
}
"""Name in `then` of a grid -> kind of figure."""


def figure_function(name: str) -> Callable:
    """Return the function that draws a figure; its module is imported late, because reading a grid needs the names alone."""
    module, _, function = FIGURE_KINDS[name].function.partition(".")
    return getattr(import_module(f"{__name__}.{module}"), function)
