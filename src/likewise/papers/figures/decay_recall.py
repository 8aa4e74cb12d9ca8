"""Spectral decay of training embeddings against the test score, with correlation (training strategies, figure 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from likewise.core.render.figures import (
    SOFT_COLOUR,
    WITH_COLOUR,
    WITHOUT_COLOUR,
    Estimate,
    entitle,
    shorten,
    spread,
    tidy,
)
from likewise.papers.figures.drawing import Drawing, FinishedTable, name_beside, partners, styled
from likewise.papers.figures.spectra import measure_spectra, rho_of
from likewise.score.significance import Coefficient, Correlation, correlate

INTERVAL_NOTE = (
    "The intervals of the correlation treat the methods as independent draws from a population of methods; methods of one family "
    "are not independent, so the intervals are too narrow."
)

PLOT_WIDTH, MIN_PLOT_HEIGHT, NAME_HEIGHT, MAX_NAME_LETTERS = 5.2, 3.8, 0.18, 34
"""Inches: width and smallest height of the plot, distance between names; and the largest length of a name."""


class DecayPoint(NamedTuple):
    """One method: spectral decay and score over seeds. `partner`: for a regularised method, the name of the one without."""

    name: str
    rho: Estimate
    score: Estimate
    partner: str | None = None


def draw(table: FinishedTable) -> Drawing:
    """Return the scatter plot, and a note about the correlation."""
    metric, groups = table.metric, table.seed_groups()
    spectra, notes = measure_spectra(groups, table.config)
    plain_of = {regularised: plain for plain, regularised in partners(group.row for group in groups).items()}
    points = [
        DecayPoint(group.row, rho_of(own), group.score, plain_of.get(group.row))
        for group, own in zip(groups, spectra)
        if own
    ]
    if not points:
        return Drawing(None, notes)
    values = {"decay_recall": (
        ["method", "regularised", "rho", "rho_std", metric, "std", "seeds"],
        [
            [p.name, "yes" if p.partner else "no", p.rho.mean, p.rho.std, p.score.mean, p.score.std, p.score.n]
            for p in points
        ],
    )}  # fmt: skip
    found = correlate([p.rho.mean for p in points], [p.score.mean for p in points])
    figure = draw_decay(points, metric, table.data_name, found)
    said = [
        f"Spectral decay rho of the training embeddings against {metric} of the test split: {describe_correlation(found)}."
    ]
    by_name = {p.name: p for p in points}
    pairs = [(by_name[p.partner], p) for p in points if p.partner in by_name]
    if pairs:
        down = sum(after.rho.mean < before.rho.mean for before, after in pairs)
        both = sum(after.rho.mean < before.rho.mean and after.score.mean > before.score.mean for before, after in pairs)
        said.append(
            f"With rho-regularisation rho is lower for {down} of {len(pairs)} methods, and at the same time {metric} higher "
            f"for {both} (the paper: for each)."
        )
    return Drawing(figure, [*said, INTERVAL_NOTE * bool(np.isfinite(found.pearson.low)), *notes], values)


@styled
def draw_decay(points: Sequence[DecayPoint], metric: str, data: str, correlation: Correlation) -> Figure:
    """Return the scatter plot; whiskers are standard deviations over seeds, arrows lead to the method with regularisation."""
    points = sorted(points, key=lambda p: p.score.mean)
    plot_height = max(MIN_PLOT_HEIGHT, NAME_HEIGHT * (len(points) + 1))
    wide, tall = (
        PLOT_WIDTH + 1.3 + 0.068 * max(len(shorten(p.name, MAX_NAME_LETTERS)) for p in points),
        plot_height + 1.75,
    )
    wide = max(wide, 7.4)
    figure = Figure(figsize=(wide, tall))
    axes = figure.add_axes((0.75 / wide, 0.9 / tall, PLOT_WIDTH / wide, plot_height / tall))
    rho, score = (np.array([getattr(p, kind)[:2] for p in points]).T for kind in ("rho", "score"))
    axes.errorbar(
        rho[0], score[0], score[1], rho[1], fmt="none", ecolor=SOFT_COLOUR, elinewidth=1, capsize=2, alpha=0.7, zorder=2
    )
    for is_with, colour, name in ((False, WITHOUT_COLOUR, "without"), (True, WITH_COLOUR, "with rho-regularisation")):
        some = np.array([bool(p.partner) == is_with for p in points])
        axes.scatter(rho[0][some], score[0][some], s=34, color=colour, label=name, zorder=4)
    place = {p.name: (p.rho.mean, p.score.mean) for p in points}
    for point in (p for p in points if p.partner in place):
        axes.annotate(
            "", place[point.name], place[str(point.partner)], zorder=3,
            arrowprops={"arrowstyle": "->", "color": WITH_COLOUR, "lw": 0.9, "alpha": 0.65, "shrinkA": 4, "shrinkB": 4},
        )  # fmt: skip
    low, high = axes.get_ylim()
    for point, at in zip(points, spread(score[0], NAME_HEIGHT / plot_height * (high - low), low, high)):
        name_beside(axes, shorten(point.name, MAX_NAME_LETTERS), place[point.name], at)
    axes.set_ylim(low, high)
    tidy(axes)
    axes.set(
        xlabel="spectral decay ρ of the training embeddings (0: flat spectrum)",
        ylabel=f"{metric} of the test split (%)",
    )
    figure.legend(loc="lower left", bbox_to_anchor=(0.6 / wide, 0), ncols=2)
    entitle(figure, f"Spectral decay against {metric} on {data}", describe_correlation(correlation))
    return figure


def describe_correlation(found: Correlation) -> str:
    """Return both coefficients with their 95 % intervals, and the number of methods, as text."""
    if np.isnan(found.pearson.value):
        return f"no correlation: {found.n} methods, or all values are the same"
    return f"Pearson {_in_words(found.pearson)}, Spearman {_in_words(found.spearman)}, {found.n} methods"


def _in_words(one: Coefficient) -> str:
    between = "" if np.isnan(one.low) else f" ({one.low:.2f} to {one.high:.2f})"
    return f"{one.value:.2f}{between}".replace("-", "\N{MINUS SIGN}")
