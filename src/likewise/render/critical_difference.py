"""Figures of a benchmark: the critical-difference diagram of mean ranks, and our values against the published ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from likewise.errors import LikewiseError
from likewise.numerics.significance import MethodComparison
from likewise.render.benchmark_table import Point, as_p, order_of
from likewise.render.figures import BETTER_COLOUR, FAINT_COLOUR, INK_COLOUR, SOFT_COLOUR, WORSE_COLOUR, shorten

PLOT_WIDTH, LINE_HEIGHT, BAR_GAP = 4.6, 0.27, 0.13
"""Inches: width of a plot, distance between names, and distance between bars."""

MAX_NAME_LETTERS = 44
"""Largest length of a method name in a figure."""


def draw_ranks(contest: MethodComparison) -> Figure:
    """Return the critical-difference diagram: one line per method, the best on top; a bar joins methods without a difference."""
    if len(contest.rank) < 2:
        raise LikewiseError(
            f"draw_ranks: a contest must have 2 methods or more, got {len(contest.rank)}; train other methods"
        )
    names, ranks = list(contest.rank), list(contest.rank.values())
    lines, near = len(names), ranks[0] + contest.critical
    left, right = 0.3 + 0.075 * min(MAX_NAME_LETTERS, max(map(len, names))), 0.35 + BAR_GAP * len(contest.groups)
    wide, tall = left + PLOT_WIDTH + right, 1.35 + LINE_HEIGHT * (lines + 1.5)
    figure = Figure(figsize=(wide, tall), facecolor="white")
    axes = figure.add_axes((left / wide, 0.55 / tall, PLOT_WIDTH / wide, LINE_HEIGHT * (lines + 1.5) / tall))
    axes.axvspan(ranks[0], near, color=FAINT_COLOUR, alpha=0.45, lw=0)
    axes.plot([ranks[0], near], [-0.9, -0.9], color=INK_COLOUR, lw=2, solid_capstyle="butt", marker="|", ms=8, mew=1.4)
    axes.text(
        ranks[0], -1.5, f"critical difference {contest.critical:.2f}", va="center", fontsize=8.5, color=INK_COLOUR
    )
    axes.scatter(
        ranks, range(lines), s=36, c=[BETTER_COLOUR if rank < near else SOFT_COLOUR for rank in ranks], zorder=3
    )
    for line, rank in enumerate(ranks):
        axes.annotate(
            f"{rank:.2f}", (rank, line), (7, 0), textcoords="offset points", va="center", fontsize=8, color=INK_COLOUR
        )
    for lane, group in enumerate(contest.groups):
        at = 1 + (0.2 + BAR_GAP * lane) / PLOT_WIDTH
        ends = [names.index(group[0]) - 0.3, names.index(group[-1]) + 0.3]
        axes.plot(
            [at, at],
            ends,
            color=INK_COLOUR,
            lw=3,
            solid_capstyle="butt",
            clip_on=False,
            transform=axes.get_yaxis_transform(),
        )
    room = 0.05 * (max(ranks) - min(ranks)) + 0.1
    axes.set_xlim(min(ranks) - room, max([*ranks, near]) + 2.4 * room)
    axes.set_ylim(lines - 0.5, -2.0)
    _tidy(axes, [shorten(name, MAX_NAME_LETTERS) for name in names])
    axes.set_xlabel(f"mean rank over {contest.classes} test classes, 1 is best", fontsize=9, color=INK_COLOUR)
    meaning = (
        "a bar joins methods that do not differ significantly" if contest.groups else "all methods differ significantly"
    )
    _entitle(figure, f"{contest.metric}: ranks of {lines} methods", f"Friedman {as_p(contest.friedman)}; {meaning}")
    return figure


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
    figure = Figure(figsize=(wide, tall), facecolor="white")
    axes = figure.add_axes((0.75 / wide, 0.6 / tall, side / wide, side / tall))
    low, high = min(*printed, *ours), max(*printed, *ours)
    whole = high - low or 1.0
    room = 0.06 * whole + min(
        0.3 * whole, max(reach[~np.isnan(reach)], default=0.0)
    )  # the frame clips very long intervals
    ends = (low - room, high + room)
    axes.set(xlim=ends, ylim=ends)
    axes.plot(ends, ends, color=SOFT_COLOUR, lw=1, ls=(0, (4, 3)), zorder=1)
    known, colours = ~np.isnan(reach), np.where(ours >= printed, BETTER_COLOUR, WORSE_COLOUR)
    axes.errorbar(
        printed[known], ours[known], reach[known], fmt="none", ecolor=SOFT_COLOUR, elinewidth=1.1, capsize=2, zorder=2
    )
    axes.scatter(printed, ours, s=30, c=np.where(known, colours, "white"), edgecolors=colours, linewidths=1.3, zorder=3)  # pyright: ignore[reportArgumentType]
    for point, at in zip(points, spread(ours, 0.18 / side * (ends[1] - ends[0]), *ends)):
        axes.annotate(
            shorten(point.name, MAX_NAME_LETTERS), (point.printed, point.ours.mean), (1.03, at),
            textcoords=axes.get_yaxis_transform(), va="center", fontsize=8, color=INK_COLOUR, annotation_clip=False,
            parse_math=False, zorder=1.5,
            arrowprops={"arrowstyle": "-", "color": FAINT_COLOUR, "lw": 0.8, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip
    _tidy(axes)
    axes.set_xlabel("published", fontsize=9, color=INK_COLOUR)
    axes.set_ylabel("ours, with its 95 % interval over seeds", fontsize=9, color=INK_COLOUR)
    found = order_of(points)
    tau = "" if np.isnan(found.tau) else f"Kendall's tau {found.tau:.2f} ({as_p(found.p)}, {found.n} methods); "
    _entitle(figure, title, f"{tau}blue: ours is higher{'' if known.all() else '; open: one run'}")
    return figure


def spread(wanted: Float[np.ndarray, "M"], gap: float, low: float, high: float) -> Float[np.ndarray, "M"]:
    """Return heights near the wanted ones (ascending) with at least `gap` between them, within `low` and `high` if possible."""
    steps = gap * np.arange(len(wanted))
    up = np.maximum.accumulate(wanted - steps)  # lowest heights that are not below the wanted ones
    down = np.minimum.accumulate((wanted - steps)[::-1])[::-1]  # highest heights that are not above them
    return np.maximum(np.minimum((up + down) / 2, high - steps[-1]), low) + steps


def _entitle(figure: Figure, title: str, below: str) -> None:
    wide, tall = figure.get_size_inches()
    look = {"va": "center", "color": INK_COLOUR, "parse_math": False}
    figure.text(0.12 / wide, 1 - 0.25 / tall, title, fontsize=12, fontweight="bold", **look)
    figure.text(0.12 / wide, 1 - 0.5 / tall, below, fontsize=9, **look)


def _tidy(axes: Axes, names: Sequence[str] = ()) -> None:
    if names:
        axes.set_yticks(range(len(names)), names, fontsize=9, color=INK_COLOUR, parse_math=False)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.tick_params(length=0, colors=INK_COLOUR, labelsize=9)
    axes.grid(axis="x" if names else "both", color=FAINT_COLOUR, lw=0.7)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
