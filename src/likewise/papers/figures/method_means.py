"""Figures of a benchmark: methods by columns, means of methods with their differences, our values against the published ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.errors import LikewiseError
from likewise.core.render.figures import (
    BETTER_COLOUR,
    COLOURS,
    FAINT_COLOUR,
    INK_COLOUR,
    SOFT_COLOUR,
    WORSE_COLOUR,
    entitle,
    shorten,
    spread,
    tidy,
)
from likewise.papers.benchmark_table import BenchmarkTable, Entry, Point, as_p, label, order_of
from likewise.papers.figures.drawing import name_beside, styled
from likewise.score.metrics import as_text
from likewise.score.significance import MethodComparison

PLOT_WIDTH, LINE_HEIGHT, MIN_TITLE_WIDTH = 4.6, 0.27, 7.2
"""Inches: width of a plot, distance between names, and smallest width of a figure."""

MAX_NAME_LETTERS = 44
"""Largest length of a method name in a figure."""

MAX_BAR_PANELS = 4
"""Columns that are drawn as bars; further ones are in the table only."""


@styled
def draw_columns(sheet: BenchmarkTable) -> Figure | None:
    """Return the methods as lines over the number at the end of the names of columns, otherwise as bars of the first columns.

    The metric is that of the tests, otherwise the first one. None without two methods that have it.
    """
    metric = sheet.contest.metric if sheet.contest else next((e.column[-1] for e in sheet.entries), "")
    known = [e for e in sheet.entries if e.column[-1] == metric and e.ours and not math.isnan(e.ours.mean)]
    means = {row: np.mean([e.ours.mean for e in known if e.ours and e.row == row]) for row in {e.row: 0 for e in known}}
    if len(means) < 2:
        return None
    best_first = sorted(means, key=lambda row: -means[row])
    columns = list(dict.fromkeys(e.column[:-1] for e in known))
    series = numeric_series(columns)
    titles = list(series) or list(map(label, columns[:MAX_BAR_PANELS]))
    beside = min(2, len(titles))
    lines = math.ceil(len(titles) / beside)
    height = 3.4 if series else 0.7 + LINE_HEIGHT * len(means)
    figure = Figure(figsize=(4.8 * beside, height * lines), layout="constrained")
    for axes, title, column in zip(figure.subplots(lines, beside, squeeze=False).flat, titles, columns):
        if series:
            _draw_lines(axes, [e for e in known if e.column[:-1] in series[title]], series[title], best_first)
        else:
            _draw_bars(axes, [e for e in known if e.column[:-1] == column])
        axes.set_title(title)
    for axes in figure.axes[len(titles) :]:
        axes.set_axis_off()
    if series:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def numeric_series(columns: Sequence[tuple[str, ...]]) -> dict[str, dict[tuple[str, ...], float]]:
    """Return name -> column -> number, for columns that differ in a number at their end, such as "uniform 0.5".

    A column "none" is 0 in every series. A series has three numbers or more; other columns are in none.
    """
    series: dict[str, dict[tuple[str, ...], float]] = {}
    zero = [column for column in columns if label(column) in ("none", "0")]
    for column in (column for column in columns if column not in zero):
        if found := re.fullmatch(r"(.*?)\s*(\d+(?:\.\d+)?)", label(column)):
            series.setdefault(found[1], dict.fromkeys(zero, 0.0))[column] = float(found[2])
    return {name: places for name, places in series.items() if len(set(places.values())) > 2}


def _draw_lines(
    axes: Axes, entries: Sequence[Entry], place: Mapping[tuple[str, ...], float], rows: Sequence[tuple[str, ...]]
) -> None:
    """Draw a line per method; the best methods have colours, the others are grey."""
    for number, row in enumerate(rows):
        points = sorted((place[e.column[:-1]], e.ours.mean) for e in entries if e.row == row and e.ours)
        colour = COLOURS[number] if number < len(COLOURS) else FAINT_COLOUR
        axes.plot(*np.reshape(points, (-1, 2)).T, "o-", color=colour, ms=4, lw=1.6, label=shorten(label(row), 30))
    tidy(axes)


def _draw_bars(axes: Axes, entries: Sequence[Entry]) -> None:
    """Draw a bar per method, the best first, with the interval over seeds (or their range) and the published number."""
    entries = sorted(entries, key=lambda e: -e.ours.mean if e.ours else 0.0)
    for y, e in enumerate(entries):
        assert e.ours is not None
        values = [e.scale * value for value in e.values]
        ends = (min(values), max(values)) if math.isnan(e.ours.low) else (e.ours.low, e.ours.high)
        axes.barh(y, e.ours.mean, 0.7, color=BETTER_COLOUR if y == 0 else SOFT_COLOUR, zorder=2)
        axes.plot(ends, (y, y), color=INK_COLOUR, lw=1.2, zorder=3)
        if e.printed:
            axes.plot(e.printed.mean, y, "D", ms=4, mfc="white", mec=WORSE_COLOUR, zorder=4)
        axes.annotate(
            f"{e.ours.mean:.{1 if e.scale == 100 else 4}f}", (max(ends), y), (5, 0), textcoords="offset points", va="center",
            fontsize=8,
        )  # fmt: skip
    tidy(axes, [shorten(label(e.row), MAX_NAME_LETTERS) for e in entries])
    axes.set_ylim(len(entries) - 0.4, -0.6)
    axes.margins(x=0.12)


@styled
def draw_means(contest: MethodComparison) -> Figure:
    """Return a figure of the methods' means, the best on top, and of the pairs that differ significantly."""
    if contest.untested:
        raise LikewiseError(
            f"draw_means: methods must be tested against each other, but {contest.untested}; train more"
        )
    names, lines = (
        [f"{shorten(name, MAX_NAME_LETTERS)}  {line}" for line, name in enumerate(contest.mean, 1)],
        len(contest.mean),
    )
    is_share = as_text(contest.metric, 1.0).endswith("%")
    means = [(100 if is_share else 1) * mean for mean in contest.mean.values()]
    left, square = 0.3 + 0.075 * max(map(len, names)), LINE_HEIGHT * lines
    wide, tall = max(left + PLOT_WIDTH + square + 0.55, MIN_TITLE_WIDTH), 1.6 + square
    figure = Figure(figsize=(wide, tall))
    axes = figure.add_axes((left / wide, 0.55 / tall, PLOT_WIDTH / wide, square / tall))
    table = significant_pairs(contest)
    axes.scatter(
        means, range(lines), s=36, c=[SOFT_COLOUR if sign < 0 else BETTER_COLOUR for sign in table[:, 0]], zorder=3
    )
    for line, mean in enumerate(means):
        axes.annotate(
            f"{mean:.1f}" if is_share else f"{mean:.4f}", (mean, line), (7, 0), textcoords="offset points", va="center",
            fontsize=8,
        )  # fmt: skip
    room = 0.05 * (means[0] - means[-1]) or 0.1 * abs(means[0]) or 0.1
    axes.set(xlim=(means[-1] - room, means[0] + 3.4 * room), ylim=(lines - 0.5, -0.5))
    tidy(axes, names)
    columns = len({pair.column for pair in contest.pairs})
    over = f"seeds and {columns} columns" if columns > 1 else "seeds"
    unit = " in %" if is_share else ""
    axes.set_xlabel(f"mean {contest.metric}{unit} over {over}")
    _draw_pairs(figure.add_axes(((left + PLOT_WIDTH + 0.25) / wide, 0.55 / tall, square / wide, square / tall)), table)
    told, seeds = sum(pair.is_significant for pair in contest.overall), min(pair.seeds for pair in contest.overall)
    entitle(
        figure, f"{contest.metric}: {told} of {len(contest.overall)} pairs differ significantly",
        f"{contest.classes} test classes, {seeds} seeds; square: blue if the row is better than the column, orange if worse",
    )  # fmt: skip
    return figure


def significant_pairs(contest: MethodComparison) -> Int[np.ndarray, "M M"]:
    """Return 1 where the method of the row is significantly better than that of the column, -1 where it is worse, else 0."""
    place = {name: line for line, name in enumerate(contest.mean)}
    table = np.zeros((len(place), len(place)), int)
    for pair in contest.overall:
        sign = {"better": -1, "worse": 1}.get(pair.outcome, 0)  # the outcome is about b
        table[place[pair.a], place[pair.b]], table[place[pair.b], place[pair.a]] = sign, -sign
    return table


def _draw_pairs(axes: Axes, table: Int[np.ndarray, "M M"]) -> None:
    """Draw a square for every significant difference and a dot for every other pair; columns have the numbers of the rows."""
    lines, other = len(table), ~np.eye(len(table), dtype=bool)
    row, column = np.nonzero(other & (table == 0))
    axes.scatter(column, row, s=6, c=FAINT_COLOUR)
    for sign, colour in ((1, BETTER_COLOUR), (-1, WORSE_COLOUR)):
        row, column = np.nonzero(table == sign)
        axes.scatter(column, row, s=110, marker="s", c=colour)
    axes.set(xlim=(-0.5, lines - 0.5), ylim=(lines - 0.5, -0.5), yticks=[])
    axes.set_xticks(range(lines), [str(line) for line in range(1, lines + 1)], fontsize=8, color=INK_COLOUR)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


@styled
def draw_agreement(points: Sequence[Point], title: str) -> Figure:
    """Return a figure of published values (x) against ours (y) with intervals over seeds; the dashed line is equality."""
    if not points:
        raise LikewiseError(
            "draw_against: at least one method must have a published value and ours, got none; train one first"
        )
    points = sorted(points, key=lambda p: p.ours.mean)
    printed, ours = np.array([p.printed for p in points]), np.array([p.ours.mean for p in points])
    reach = np.array([p.ours.high - p.ours.mean for p in points])
    side, name = max(PLOT_WIDTH, 0.19 * len(points)), 0.068 * min(MAX_NAME_LETTERS, max(len(p.name) for p in points))
    wide, tall = side + 1.2 + name, side + 1.35
    figure = Figure(figsize=(wide, tall))
    axes = figure.add_axes((0.75 / wide, 0.6 / tall, side / wide, side / tall))
    low, high = min(*printed, *ours), max(*printed, *ours)
    whole = high - low or 1.0
    longest = min(0.3 * whole, max(reach[~np.isnan(reach)], default=0.0))  # the frame clips very long intervals
    room = 0.06 * whole + longest
    ends = (low - room, high + room)
    axes.set(xlim=ends, ylim=ends)
    axes.plot(ends, ends, color=SOFT_COLOUR, lw=1, ls=(0, (4, 3)), zorder=1)
    known, colours = ~np.isnan(reach), np.where(ours >= printed, BETTER_COLOUR, WORSE_COLOUR)
    axes.errorbar(
        printed[known], ours[known], reach[known], fmt="none", ecolor=SOFT_COLOUR, elinewidth=1.1, capsize=2, zorder=2
    )
    axes.scatter(printed, ours, s=30, c=np.where(known, colours, "white"), edgecolors=colours, linewidths=1.3, zorder=3)  # pyright: ignore[reportArgumentType]
    for point, at in zip(points, spread(ours, 0.18 / side * (ends[1] - ends[0]), *ends)):
        name_beside(axes, shorten(point.name, MAX_NAME_LETTERS), (point.printed, point.ours.mean), at)
    tidy(axes)
    axes.set(xlabel="published", ylabel="ours, with its 95 % interval over seeds")
    found = order_of(points)
    tau = "" if np.isnan(found.tau) else f"Kendall's tau {found.tau:.2f} ({as_p(found.p)}, {found.n} methods); "
    entitle(figure, title, f"{tau}blue: ours is higher{'' if known.all() else '; open: one run'}")
    return figure
