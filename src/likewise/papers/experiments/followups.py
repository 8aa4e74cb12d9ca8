"""Figures of a table: the methods' means, our values against the paper's, and the figures that its grid names in `then`."""

from __future__ import annotations

from collections.abc import Sequence

from likewise.core.render.figures import Picture, themed_svg, write_figure
from likewise.core.settings import Bench
from likewise.papers.experiments.figures import FIGURE_KINDS, figure_function
from likewise.papers.experiments.grid_types import Grid
from likewise.papers.experiments.jobs import PlannedRun
from likewise.papers.render.benchmark_table import BenchmarkTable, against, label, lay_out
from likewise.papers.render.method_means import draw_agreement, draw_means


def follow_up(
    grid: Grid, sheet: BenchmarkTable, plan: Sequence[PlannedRun], config: Bench
) -> tuple[list[Picture], list[str]]:
    """Return the figures of a table and notes about them; writes each figure into its folder.

    Figures of `then` are drawn from all finished trainings, two or more, and not with --only: on a cluster every cell is a
    command of its own. A grid without trainings has figures that need none.
    """
    pictures = usual_figures(sheet)
    done = [t for t in plan if t.finished]
    if grid.then and config.only:
        return pictures, [f"Not drawn with --only: {', '.join(grid.then)}; run the command again without --only."]
    notes = []
    for name in grid.then if len(done) > 1 or grid.is_figure_only else ():
        kind = FIGURE_KINDS[name]
        figure, lines = figure_function(name)(grid, sheet, done, config)
        pictures += [Picture(kind.title, figure, f"{name}.png", kind.leads)] if figure else []
        notes += lines
    return pictures, notes


def usual_figures(sheet: BenchmarkTable) -> list[Picture]:
    """Return the figures that every table has if its trainings allow them: means of methods, and ours against the paper."""
    pictures = []
    if sheet.contest and not sheet.contest.untested:
        figure = draw_means(sheet.contest)
        png = write_figure(figure, sheet.folder / "means.png")
        pictures.append(Picture("Means", png, "means.png", svg=themed_svg(figure)))
    columns = {column: points for column in lay_out(sheet).columns if len(points := against(sheet, column)) > 2}
    if columns:
        first = next(iter(columns))
        figure = draw_agreement(columns[first], label(first))
        png = write_figure(figure, sheet.folder / "against.png")
        pictures.append(Picture("Against the paper", png, "against.png", svg=themed_svg(figure)))
    return pictures
