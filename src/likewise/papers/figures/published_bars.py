"""Bars of the published R@1 on CUB200 by method (influence study, figure 1), from the papers whose tables are shipped.

The bars of the study cannot be read in our copy, so its methods are replaced by those of tables with printed numbers.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from likewise.core.render.figures import COLOURS, INK_COLOUR, SOFT_COLOUR, shorten, tidy
from likewise.papers.benchmark_table import as_printed
from likewise.papers.figures.drawing import Drawing, FinishedTable, styled
from likewise.papers.published import Number, numbers, papers
from likewise.score.intervals import Interval

BAR_METRIC, BAR_DATASET = "R@1", "CUB200"
"""Metric and data set of the figure."""

BAR_SOURCES = {
    ("influence", "1"): "ResNet-50, 512 numbers",
    ("procsim", "8"): "ResNet-50, 512 numbers",
    ("training-strategies", "4"): "ResNet-50, 128 numbers",
}
"""Paper and table of the bars -> network and length of the embedding. All are trained without label noise."""

PROXY_METHODS = (
    "ProxyNCA++", "ProxyAnchor", "ProxyNCA", "SoftTriple", "NormSoft", "NormalizedSoftmax", "ArcFace",
)  # fmt: skip
"""Methods whose loss compares samples with proxies (or weights) of the classes."""

UNTRAINED_METHODS = ("ImageNet-pretrained (no DML training)",)
"""Rows of the tables that no loss has trained."""

OUR_TABLE = "influence-table1"
"""Table whose trainings are drawn beside the printed numbers, if its folder is beside that of the figure."""

BAR_HEIGHT, PLOT_WIDTH, MAX_NAME_LETTERS = 0.21, 5.6, 40
"""Inches: height of a bar, width of the plot; and the largest length of a name."""

HEAD_HEIGHT = 0.42
"""Inches: height of the title of a group."""

BAR_COLOURS = {True: COLOURS[1], False: COLOURS[0], None: SOFT_COLOUR}
"""Whether a loss compares samples with proxies (None: no training) -> colour of its bar."""

LABEL_ROOM_SHARE = 0.36
"""Room for the numbers to the right of the longest bar, as a share of the plot."""


class PublishedBar(NamedTuple):
    """One bar: method, published mean and spread in per cent, and our value if there is one.

    `has_proxies`: whether its loss compares samples with proxies of the classes; None without training.
    """

    name: str
    mean: float
    spread: float | None
    has_proxies: bool | None
    ours: Interval | None = None


class BarGroup(NamedTuple):
    """The bars of one source, the highest first."""

    title: str
    bars: Sequence[PublishedBar]


def draw(table: FinishedTable) -> Drawing:
    """Return the bars, and notes with the sources."""
    folder = table.sheet.folder.parent
    ours = our_means(folder / OUR_TABLE / "table.csv")
    groups, lines, notes = [], [], []
    for (paper, number), network in BAR_SOURCES.items():
        found = numbers(paper=paper, table=number, dataset=BAR_DATASET, metric=BAR_METRIC)
        found = sorted(found, key=lambda n: -n.mean)
        about = papers()[paper]
        first = about.authors.split(",")[0]
        title = f"{first} et al. {about.year}, table {number} ({network})"
        bars = [bar_of(n, ours.get(n.method) if paper == "influence" else None) for n in found]
        groups.append(BarGroup(title, bars))
        lines += [csv_line(n, bar) for n, bar in zip(found, bars)]
        notes += list(dict.fromkeys(text for n in found for text in n.about))
    columns = ["paper", "table", "method", "miner", "printed", "spread", "spread_is", "proxies", "ours", "low", "high"]
    if not ours:
        notes.append(f"Without our trainings: {folder / OUR_TABLE / 'table.csv'} does not exist or has none.")
    figure = draw_published_bars(groups, BAR_METRIC)
    return Drawing(figure, [describe(groups), *notes], {"published_bars": (columns, lines)})


def bar_of(number: Number, ours: Interval | None) -> PublishedBar:
    """Return the bar of a published number; its name has the miner if the table has one."""
    miner = f", {number.miner}" if number.miner not in ("", "none") else ""
    has_proxies = None if number.method in UNTRAINED_METHODS else number.method in PROXY_METHODS
    return PublishedBar(f"{number.method}{miner}", number.mean, number.spread, has_proxies, ours)


def csv_line(number: Number, bar: PublishedBar) -> list:
    """Return the line of a bar in the CSV file; unknown values are empty."""
    ours = [bar.ours.mean, bar.ours.low, bar.ours.high] if bar.ours else ["", "", ""]
    spread = "" if number.spread is None else number.spread
    return [
        number.paper, number.table, number.method, number.miner, number.mean, spread, number.spread_is,
        "yes" if bar.has_proxies else "no", *ours,
    ]  # fmt: skip


def our_means(file: Path) -> dict[str, Interval]:
    """Return method -> our mean and interval from the table.csv of a table; {} if there is no file."""
    if not file.exists():
        return {}
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row.get("metric") == BAR_METRIC and row.get("mean")]
    return {
        row["method"]: Interval(
            float(row["mean"]), float(row["low"] or "nan"), float(row["high"] or "nan"), int(row["n"])
        )
        for row in rows
    }


def describe(groups: Sequence[BarGroup]) -> str:
    """Return a sentence about the three best methods of all groups, beside the claim of the study."""
    best = sorted((bar for group in groups for bar in group.bars), key=lambda bar: -bar.mean)[:3]
    count = sum(bar.has_proxies is True for bar in best)
    named = ", ".join(f"{bar.name} {bar.mean:.1f}" for bar in best)
    return (
        f"The study (2022) states that its three best methods have proxies. Of the numbers here, some of which are later, the "
        f"three best are {named}: {count} of 3 have."
    )


@styled
def draw_published_bars(groups: Sequence[BarGroup], metric: str) -> Figure:
    """Return horizontal bars from 0, one block per source; whiskers: printed ±; circles: our means with intervals."""
    names = [shorten(bar.name, MAX_NAME_LETTERS) for group in groups for bar in group.bars]
    heights = [BAR_HEIGHT * (len(group.bars) + 0.4) for group in groups]
    wide = PLOT_WIDTH + 0.4 + 0.075 * max(map(len, names))
    tall = 0.75 + sum(heights) + HEAD_HEIGHT * len(groups)
    figure = Figure(figsize=(wide, tall))
    left, top = wide - PLOT_WIDTH - 0.15, tall - 0.3
    highest = max(bar.mean + (bar.spread or 0) for group in groups for bar in group.bars)
    for group, height in zip(groups, heights):
        top -= HEAD_HEIGHT + height
        axes = figure.add_axes((left / wide, top / tall, PLOT_WIDTH / wide, height / tall))
        _draw_group(axes, group, highest)
        figure.text(
            0.12 / wide, (top + height + 0.13) / tall, group.title, fontsize=10, fontweight="bold", va="center",
        )  # fmt: skip
        if group is groups[-1]:
            axes.set_xlabel(f"{metric} (%)")
        else:
            axes.tick_params(labelbottom=False)
    _add_legend(figure, any(bar.ours for group in groups for bar in group.bars))
    return figure


def _draw_group(axes: Axes, group: BarGroup, highest: float) -> None:
    """Draw the bars of one source, with their numbers to the right."""
    for y, bar in enumerate(group.bars):
        axes.barh(y, bar.mean, 0.8, color=BAR_COLOURS[bar.has_proxies], alpha=0.8, zorder=2)
        text, end = as_printed(bar.mean, bar.spread), bar.mean + (bar.spread or 0)
        if bar.spread:
            axes.plot([bar.mean - bar.spread, end], [y, y], color=INK_COLOUR, lw=1, zorder=3)
        if bar.ours:
            low, high = (
                (bar.ours.low, bar.ours.high) if not math.isnan(bar.ours.low) else (bar.ours.mean, bar.ours.mean)
            )
            axes.plot([low, high], [y + 0.2] * 2, color=INK_COLOUR, lw=1, zorder=4)
            axes.plot(bar.ours.mean, y + 0.2, "o", ms=4.5, mfc="white", mec=INK_COLOUR, zorder=5)
            text, end = f"{text}  (ours {bar.ours.mean:.1f})", max(end, high)
        axes.text(end + 0.012 * highest, y, text, va="center", fontsize=8)
    axes.set(xlim=(0, (1 + LABEL_ROOM_SHARE) * highest), ylim=(len(group.bars) - 0.3, -0.7))
    tidy(axes, [shorten(bar.name, MAX_NAME_LETTERS) for bar in group.bars])


def _add_legend(figure: Figure, has_ours: bool) -> None:
    handles: list = [
        Patch(color=BAR_COLOURS[True], alpha=0.8, label="loss with proxies of the classes"),
        Patch(color=BAR_COLOURS[False], alpha=0.8, label="other losses"),
        Patch(color=BAR_COLOURS[None], alpha=0.8, label="not trained"),
        Line2D([], [], color=INK_COLOUR, lw=1, label="printed ±"),
    ]
    if has_ours:
        handles.append(Line2D([], [], marker="o", mfc="white", mec=INK_COLOUR, color=SOFT_COLOUR, label="our mean"))
    wide, tall = figure.get_size_inches()
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.04 / wide, 1 - 0.04 / tall), ncols=5, fontsize=8.5,
        columnspacing=1.4, handlelength=1.6,
    )  # fmt: skip
