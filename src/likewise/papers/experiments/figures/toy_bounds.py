"""Toy of confidence with two lower bounds (ProcSim, figure 4): SuperLoss' beta0 = -2/e, and ProcSim's 0."""

from __future__ import annotations

import math
from collections.abc import Sequence

from likewise.core.settings import Bench
from likewise.papers.experiments.figures._toys import confidence_of, mixture_losses, write_toys
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.papers.render.confidence_toys import Toy

TOY_LAMBDA, LOWER_BOUNDS = 1.0, {"β₀ = −2/e (SuperLoss)": -2 / math.e, "β₀ = 0 (ProcSim)": 0.0}
"""lambda of the figure, as printed; and name of a confidence -> beta0 of eq. 12."""

MODE_MEANS = {"overlapping modes": (1.0, 2.0), "separable modes": (1.0, 5.0)}
"""Name of a toy -> mean loss of right and of wrong labels. Assumed: the paper prints no values."""

MODE_DEVIATION, WRONG_SHARE = 0.5, 0.5
"""Standard deviation of both modes, and share of wrong labels. Assumed, like the means."""


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the distribution of the confidences with both bounds, for modes that overlap and that are separable.

    The threshold is the average loss, as in print. Writes toy_bounds.csv.
    """
    toys = []
    for name, means in MODE_MEANS.items():
        loss, wrong = mixture_losses(means, MODE_DEVIATION, WRONG_SHARE)
        average = float(loss.mean())
        ways = [confidence_of(text, loss, average, TOY_LAMBDA, bound) for text, bound in LOWER_BOUNDS.items()]
        toys.append(Toy(name, loss, wrong, ways))
    return write_toys(toys, sheet.folder, "toy_bounds")
