"""Bars of the score with and without rho-regularisation, beside the printed values (training strategies, figure 9)."""

from __future__ import annotations

from collections.abc import Sequence

from likewise.core.files import write_csv
from likewise.core.render.figures import write_figure
from likewise.core.settings import Bench
from likewise.papers.experiments.figures._groups import SeedGroup, data_name, partners, seed_groups
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable
from likewise.papers.render.regularised_bars import Bar, draw_bars


def draw(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the bars as a PNG, and a note about the effect of regularisation. Writes regularised_bars.csv, one line per bar."""
    metric, groups = seed_groups(grid, sheet, done)
    bars = bars_of(groups)
    if not bars:
        return None, ["no bars: no training of this table is finished"]
    write_csv(
        sheet.folder / "regularised_bars.csv",
        ["method", "regularised", metric, "std", "seeds", "printed", "printed_std"],
        [[bar.name, "yes" if bar.is_regularised else "no", *bar.score, *(bar.printed or ("", ""))] for bar in bars],
    )
    figure = write_figure(draw_bars(bars, metric, data_name(done)), sheet.folder / "regularised_bars.png")
    return figure, describe_gains(bars, metric)


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
