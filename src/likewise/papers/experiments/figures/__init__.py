"""Figures that a grid names in `then`, one module each. `FIGURE_KINDS` is the registry.

`draw(grid, sheet, done, config)` gets the grid, its table, its finished trainings and the settings of bench. It returns the PNG
(None if there is nothing to draw) and notes; it writes NAME.png and NAME.csv, the values of the figure, into `sheet.folder`. What
it computes from a run is stored in the folder of the run. The drawing itself, from records, is in `render/`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class FigureKind(NamedTuple):
    """A kind of figure: its title, and whether it is shown above the table (`leads`) or below it."""

    title: str
    leads: bool = True


FIGURE_KINDS = {
    "overlap": FigureKind("Test classes at which networks fail", leads=False),
    "detection": FigureKind("Wrong labels found"),
    "noise_recall": FigureKind("Recall of wrong labels"),
    "published_bars": FigureKind("Published R@1 by method"),
    "toy_bounds": FigureKind("Confidences with two lower bounds"),
    "toy_thresholds": FigureKind("Confidences with two thresholds"),
    "switch_sweep": FigureKind("Probability of rho-regularisation"),
    "regularised_bars": FigureKind("With and without rho-regularisation"),
    "decay_recall": FigureKind("Spectral decay of training embeddings against the test score"),
    "class_spectra": FigureKind("Singular values of the classes"),
    "mixup": FigureKind("Manifold mixup"),
    "interval_sweep": FigureKind("Interval between clusterings"),
}
"""Name in `then` of a grid, which is also the name of the module -> kind of figure."""


def figure_function(name: str) -> Callable:
    """Return the function `draw` of a figure; its module is imported late, because reading a grid needs the names alone."""
    return import_module(f"{__name__}.{name}").draw
