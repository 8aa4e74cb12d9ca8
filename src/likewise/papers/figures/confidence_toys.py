"""Toys of confidence (ProcSim, figures 4 and 5): losses of two Gaussians, and the distribution of their confidences (eq. 12).

Figure 4 compares two lower bounds: SuperLoss' beta0 = -2/e, and ProcSim's 0. Figure 5 compares two thresholds: the average loss,
as SuperLoss, and Otsu's, as ProcSim. The means and deviations of the Gaussians are assumed: the paper prints no values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.render.figures import (
    BETTER_COLOUR,
    INK_COLOUR,
    SOFT_COLOUR,
    WORSE_COLOUR,
)
from likewise.learn.confidence.thresholds import otsu, weigh
from likewise.papers.figures.drawing import Drawing, FinishedTable, dress, styled

TOY_SAMPLES = 4000
"""Number of losses in a toy."""

CURVE_POINTS = 400
"""Number of losses at which the confidence is drawn as a function."""

LOWER_BOUNDS = {"β₀ = −2/e (SuperLoss)": -2 / math.e, "β₀ = 0 (ProcSim)": 0.0}
"""Figure 4: name of a confidence -> beta0 of eq. 12; lambda is 1, as printed."""

BOUND_TOYS = {"overlapping modes": (1.0, 2.0), "separable modes": (1.0, 5.0)}
"""Figure 4: name of a toy -> mean loss of right and of wrong labels; their deviation is 0.5, and half of the labels are wrong."""

WRONG_SHARES = (0.1, 0.5)
"""Figure 5: share of wrong labels of each toy. With half of the labels wrong, both thresholds nearly agree."""

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


def draw_bounds(table: FinishedTable) -> Drawing:
    """Return the distribution of the confidences with both bounds, for modes that overlap and that are separable.

    The threshold is the average loss, as in print.
    """
    toys = []
    for name, means in BOUND_TOYS.items():
        loss, wrong = mixture_losses(means, 0.5, wrong_share=0.5)
        average = float(loss.mean())
        ways = [confidence_of(text, loss, average, 1.0, bound) for text, bound in LOWER_BOUNDS.items()]
        toys.append(Toy(name, loss, wrong, ways))
    return drawing_of(toys, "toy_bounds")


def draw_thresholds(table: FinishedTable) -> Drawing:
    """Return the distribution of the confidences above either threshold."""
    toys = []
    for share in WRONG_SHARES:
        loss, wrong = mixture_losses((1.0, 3.0), 0.3, share)
        taus = {
            "τ = average (SuperLoss)": float(loss.mean()),
            "τ by Otsu (ProcSim)": float(otsu(torch.as_tensor(loss))),
        }
        ways = [confidence_of(name, loss, tau, 0.1, 0.0) for name, tau in taus.items()]  # lambda and beta0 as printed
        toys.append(Toy(f"{100 * share:.0f} % wrong labels", loss, wrong, ways))
    return drawing_of(toys, "toy_thresholds")


def mixture_losses(
    means: tuple[float, float], deviation: float, wrong_share: float, seed: int = 0
) -> tuple[Float[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
    """Return losses of a mixture of two Gaussians, and which of them are of wrong labels: those of the second Gaussian."""
    wrong = np.arange(TOY_SAMPLES) < round(wrong_share * TOY_SAMPLES)
    draw = np.random.default_rng(seed)
    return draw.normal(np.where(wrong, means[1], means[0]), deviation), wrong


def confidence_of(name: str, loss: Float[np.ndarray, "N"], tau: float, lam: float, bound: float) -> ToyConfidence:
    """Return eq. 12 of the paper, e^-W(max(bound, (loss - tau) / lam) / 2), for every loss and over the range of the losses."""
    over = np.linspace(loss.min(), loss.max(), CURVE_POINTS)
    threshold = torch.tensor(tau, dtype=torch.float64)
    own, curve = (weigh(torch.as_tensor(x), threshold, lam, bound).numpy() for x in (loss, over))
    return ToyConfidence(name, tau, own, over, curve)


def drawing_of(toys: Sequence[Toy], name: str) -> Drawing:
    """Return the figure of toys with its values, and for every confidence a note about right and wrong labels."""
    lines = [
        [toy.name, way.name, loss, "wrong" if wrong else "right", confidence]
        for toy in toys
        for way in toy.ways
        for loss, wrong, confidence in zip(toy.loss.tolist(), toy.wrong.tolist(), way.confidence.tolist())
    ]
    notes = [describe(toy, way) for toy in toys for way in toy.ways]
    return Drawing(draw_toys(toys), notes, {name: (["toy", "confidence of", "loss", "label", "confidence"], lines)})


def describe(toy: Toy, way: ToyConfidence) -> str:
    """Return a sentence: threshold, mean confidence of right and of wrong labels, and the share of right labels below 1."""
    right, wrong = way.confidence[~toy.wrong], way.confidence[toy.wrong]
    return (
        f"{toy.name}, {way.name}: threshold {way.threshold:.2f}; mean confidence of right labels {right.mean():.2f}, of wrong "
        f"labels {wrong.mean():.2f}; {100 * (right < 1).mean():.0f} % of the right labels are below 1."
    )


@styled
def draw_toys(toys: Sequence[Toy]) -> Figure:
    """Return a figure with a row per toy: its losses with the confidence over them, then a histogram of each confidence."""
    columns = 1 + max(len(toy.ways) for toy in toys)
    figure = Figure(figsize=(PANEL_WIDTH * columns + 0.3, PANEL_HEIGHT * len(toys) + 0.45), layout="constrained")
    for line, toy in enumerate(toys):
        _draw_losses(figure.add_subplot(len(toys), columns, line * columns + 1), toy, is_first=line == 0)
        highest = max(1.0, max(float(way.confidence.max()) for way in toy.ways))
        for place, way in enumerate(toy.ways):
            axes = figure.add_subplot(len(toys), columns, line * columns + 2 + place)
            edges = np.linspace(0, highest, HISTOGRAM_BINS + 1)
            _draw_histogram(axes, way.confidence, toy.wrong, edges)
            axes.axvline(1, color=SOFT_COLOUR, lw=0.8, ls=":")
            dress(axes, way.name, "confidence", "share (%)", "y")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
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
    over.set_ylabel("confidence")
    over.tick_params(labelsize=8, colors=INK_COLOUR)
    over.spines[["top", "left"]].set_visible(False)
    dress(axes, toy.name, "loss", "share (%)", "y")


def _draw_histogram(
    axes: Axes, value: Float[np.ndarray, "N"], wrong: Bool[np.ndarray, "N"], edges: Float[np.ndarray, "B"]
) -> None:
    """Draw the right and the wrong labels as overlaid histograms, each in per cent of its own labels."""
    for some, colour, name in ((~wrong, BETTER_COLOUR, "right labels"), (wrong, WORSE_COLOUR, "wrong labels")):
        share = np.full(some.sum(), 100 / max(1, some.sum()))
        axes.hist(value[some], edges.tolist(), weights=share, color=colour, alpha=0.6, label=name)
