"""Shared by the toys of confidence (ProcSim, figures 4 and 5): losses of two Gaussians, and eq. 12 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float

from likewise.core.files import write_csv
from likewise.core.render.figures import write_figure
from likewise.learn.confidence.thresholds import weigh
from likewise.papers.render.confidence_toys import Toy, ToyConfidence, draw_toys

TOY_SAMPLES = 4000
"""Number of losses in a toy."""

CURVE_POINTS = 400
"""Number of losses at which the confidence is drawn as a function."""


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


def write_toys(toys: Sequence[Toy], folder: Path, name: str) -> tuple[bytes, list[str]]:
    """Write NAME.csv and NAME.png; return the PNG, and for every confidence a note about right and wrong labels."""
    lines = [
        [toy.name, way.name, loss, "wrong" if wrong else "right", confidence]
        for toy in toys
        for way in toy.ways
        for loss, wrong, confidence in zip(toy.loss.tolist(), toy.wrong.tolist(), way.confidence.tolist())
    ]
    write_csv(folder / f"{name}.csv", ["toy", "confidence of", "loss", "label", "confidence"], lines)
    notes = [describe(toy, way) for toy in toys for way in toy.ways]
    return write_figure(draw_toys(toys), folder / f"{name}.png"), notes


def describe(toy: Toy, way: ToyConfidence) -> str:
    """Return a sentence: threshold, mean confidence of right and of wrong labels, and the share of right labels below 1."""
    right, wrong = way.confidence[~toy.wrong], way.confidence[toy.wrong]
    return (
        f"{toy.name}, {way.name}: threshold {way.threshold:.2f}; mean confidence of right labels {right.mean():.2f}, of wrong "
        f"labels {wrong.mean():.2f}; {100 * (right < 1).mean():.0f} % of the right labels are below 1."
    )
