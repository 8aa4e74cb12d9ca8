"""Bars of the published R@1 on CUB200 by method (influence study, figure 1), from the papers whose tables are shipped.

The bars of the study cannot be read in our copy, so its methods are replaced by those of tables with printed numbers.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from likewise.core.files import write_csv
from likewise.core.render.figures import write_figure
from likewise.core.settings import Bench
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.published import Number, numbers, papers
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.papers.render.published_bars import BarGroup, PublishedBar, draw_published_bars
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


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the bars as a PNG, and notes with the sources. Writes published_bars.csv."""
    ours = our_means(sheet.folder.parent / OUR_TABLE / "table.csv")
    groups, lines, notes = [], [], []
    for (paper, table), network in BAR_SOURCES.items():
        found = numbers(paper=paper, table=table, dataset=BAR_DATASET, metric=BAR_METRIC)
        found = sorted(found, key=lambda n: -n.mean)
        about = papers()[paper]
        first = about.authors.split(",")[0]
        title = f"{first} et al. {about.year}, table {table} ({network})"
        bars = [bar_of(n, ours.get(n.method) if paper == "influence" else None) for n in found]
        groups.append(BarGroup(title, bars))
        lines += [csv_line(n, bar) for n, bar in zip(found, bars)]
        notes += list(dict.fromkeys(text for n in found for text in n.about))
    columns = ["paper", "table", "method", "miner", "printed", "spread", "spread_is", "proxies", "ours", "low", "high"]
    write_csv(sheet.folder / "published_bars.csv", columns, lines)
    if not ours:
        notes.append(
            f"Without our trainings: {sheet.folder.parent / OUR_TABLE / 'table.csv'} does not exist or has none."
        )
    figure = write_figure(draw_published_bars(groups, BAR_METRIC), sheet.folder / "published_bars.png")
    return figure, [describe(groups), *notes]


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
