"""Toy of confidence with two thresholds (ProcSim, figure 5): the average loss, as SuperLoss, and Otsu's, as ProcSim."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from likewise.core.settings import Bench
from likewise.learn.confidence.thresholds import otsu
from likewise.papers.experiments.figures._toys import confidence_of, mixture_losses, write_toys
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.papers.render.confidence_toys import Toy

TOY_LAMBDA, TOY_BOUND = 0.1, 0.0
"""lambda and beta0 of the figure, as printed."""

MODE_MEANS, MODE_DEVIATION = (1.0, 3.0), 0.3
"""Mean loss of right and of wrong labels, and the standard deviation of both. Assumed: the paper prints no values."""

WRONG_SHARES = (0.1, 0.5)
"""Share of wrong labels of each toy. Assumed: with half of the labels wrong, both thresholds nearly agree."""


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the distribution of the confidences above either threshold. Writes toy_thresholds.csv."""
    toys = []
    for share in WRONG_SHARES:
        loss, wrong = mixture_losses(MODE_MEANS, MODE_DEVIATION, share)
        taus = {
            "τ = average (SuperLoss)": float(loss.mean()),
            "τ by Otsu (ProcSim)": float(otsu(torch.as_tensor(loss))),
        }
        ways = [confidence_of(name, loss, tau, TOY_LAMBDA, TOY_BOUND) for name, tau in taus.items()]
        toys.append(Toy(f"{100 * share:.0f} % wrong labels", loss, wrong, ways))
    return write_toys(toys, sheet.folder, "toy_thresholds")
