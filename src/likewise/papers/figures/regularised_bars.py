"""Bars of the score with and without rho-regularisation, beside the printed values (training strategies, figure 9)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from likewise.core.render.figures import (
    INK_COLOUR,
    WITH_COLOUR,
    WITHOUT_COLOUR,
    Estimate,
    entitle,
    shorten,
    tidy,
)
from likewise.papers.benchmark_table import as_printed
from likewise.papers.figures.drawing import Drawing, FinishedTable, SeedGroup, partners, styled

BAR_HEIGHT, PLOT_WIDTH, MAX_NAME_LETTERS = 0.2, 6.0, 34
"""Inches: height of a bar, width of the plot; and the largest length of a name."""

METHOD_GAP_SHARE = 0.5
"""Distance between two methods, as a share of a bar."""

PRINTED_OFFSET = 0.2
"""Distance of our whisker and the printed diamond from the middle of the bar, in bars."""

LABEL_ROOM_SHARE = 0.42
"""Room for the numbers to the right of the longest bar, as a share of the plot."""


class Bar(NamedTuple):
    """One bar: its name, the method that it belongs to, its score in per cent, and the published mean and deviation."""

    name: str
    method: str
    score: Estimate
    is_regularised: bool
    printed: tuple[float, float | None] | None = None


def draw(table: FinishedTable) -> Drawing:
    """Return the bars, and a note about the effect of regularisation."""
    metric = table.metric
    bars = bars_of(table.seed_groups())
    if not bars:
        return Drawing(None, ["no bars: no training of this table is finished"])
    values = {"regularised_bars": (
        ["method", "regularised", metric, "std", "seeds", "printed", "printed_std"],
        [[bar.name, "yes" if bar.is_regularised else "no", *bar.score, *(bar.printed or ("", ""))] for bar in bars],
    )}  # fmt: skip
    return Drawing(draw_bars(bars, metric, table.data_name), describe_gains(bars, metric), values)


def bars_of(groups: Sequence[SeedGroup]) -> list[Bar]:
    """Return one bar per group, the best method first; a regularised one follows its partner without regularisation."""
    by_row = {group.row: group for group in groups}
    pairs = partners(by_row)
    bars = []
    for group in sorted(groups, key=lambda one: -one.score.mean):
        if group.row in pairs.values():
            continue
        bars.append(_bar(group, group.row, False))
        if group.row in pairs:
            bars.append(_bar(by_row[pairs[group.row]], group.row, True))
    return bars


def _bar(group: SeedGroup, method: str, is_regularised: bool) -> Bar:
    printed = (group.printed.mean, group.printed.spread) if group.printed else None
    return Bar(group.row, method, group.score, is_regularised, printed)


def describe_gains(bars: Sequence[Bar], metric: str) -> list[str]:
    """Return a note: the mean with regularisation minus the mean without, for every method that has both."""
    plain = {bar.method: bar for bar in bars if not bar.is_regularised}
    gains = [(bar.method, bar.score.mean - plain[bar.method].score.mean) for bar in bars if bar.is_regularised]
    if not gains:
        return ["no method of this table has both a row with and a row without rho-regularisation"]
    texts = "; ".join(f"{method} {gain:+.1f}" for method, gain in gains).replace("-", "\N{MINUS SIGN}")
    return [
        f"{metric} with rho-regularisation minus without, in points: {texts}. The table has the tests of the differences."
    ]


@styled
def draw_bars(bars: Sequence[Bar], metric: str, data: str) -> Figure:
    """Return horizontal bars from 0, the bars of a method side by side; whiskers: standard deviations; diamonds: printed."""
    at = places_of(bars)
    names = [shorten(bar.name, MAX_NAME_LETTERS) for bar in bars]
    height = BAR_HEIGHT * (at[-1] + 1.6)
    wide, tall = PLOT_WIDTH + 0.5 + 0.075 * max(map(len, names)), height + 1.75
    left = wide - PLOT_WIDTH - 0.2
    figure = Figure(figsize=(wide, tall))
    axes = figure.add_axes((left / wide, 0.9 / tall, PLOT_WIDTH / wide, height / tall))
    colours = [WITH_COLOUR if bar.is_regularised else WITHOUT_COLOUR for bar in bars]
    axes.barh(at, [bar.score.mean for bar in bars], 0.86, color=colours, alpha=0.85, zorder=2)
    ends = _draw_whiskers(axes, bars, at)
    for y, end, bar in zip(at, ends, bars):
        text = bar.score.text(1) + (f"  (printed {as_printed(*bar.printed)})" if bar.printed else "")
        place = end + 0.012 * max(ends)
        axes.text(place, y, text, va="center", fontsize=8, bbox={"color": "white", "pad": 0.6})
    tidy(axes, names)
    axes.set_yticks(at, names, fontsize=9, color=INK_COLOUR, parse_math=False)
    axes.set(xlim=(0, (max(ends) or 1.0) * (1 + LABEL_ROOM_SHARE)), ylim=(at[-1] + 0.8, -0.8))
    axes.set_xlabel(f"{metric} (%)")
    keys: list = [
        Patch(color=WITHOUT_COLOUR, label="without"),
        Patch(color=WITH_COLOUR, label="with rho-regularisation"),
    ]
    if any(bar.printed for bar in bars):
        keys += axes.plot([], [], "D", ms=4, mfc="white", mec=INK_COLOUR, label="printed in the paper")
    figure.legend(handles=keys, loc="lower left", bbox_to_anchor=(left / wide - 0.01, 0), ncols=3)
    entitle(figure, f"{metric} with and without rho-regularisation on {data}", "mean and standard deviation over seeds")
    return figure


def places_of(bars: Sequence[Bar]) -> list[float]:
    """Return the height of every bar, in bars from the top; the bars of one method touch."""
    at = [0.0]
    for before, bar in pairwise(bars):
        at.append(at[-1] + 1 + (0 if bar.method == before.method else METHOD_GAP_SHARE))
    return at


def _draw_whiskers(axes: Axes, bars: Sequence[Bar], at: Sequence[float]) -> list[float]:
    """Draw our deviations, and below them the printed values with theirs; return the right end of each bar."""
    offset = PRINTED_OFFSET if any(bar.printed for bar in bars) else 0.0
    ends = []
    for y, bar in zip(at, bars):
        mean, std = bar.score.mean, bar.score.std
        axes.errorbar(mean, y - offset, xerr=std, fmt="none", ecolor=INK_COLOUR, elinewidth=1, capsize=2.5, zorder=3)
        ends.append(mean + float(np.nan_to_num(std)))
        if bar.printed:
            mean, std = bar.printed
            look = {"ms": 3.5, "mfc": "white", "mec": INK_COLOUR, "ecolor": INK_COLOUR, "elinewidth": 1}
            axes.errorbar(mean, y + offset, xerr=std, fmt="D", zorder=4, **look)
            ends[-1] = max(ends[-1], mean + (std or 0))
    return ends
