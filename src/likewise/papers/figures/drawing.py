"""What every figure of a table shares: what it is drawn from, what it returns, and the files that are written of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from likewise.core.files import write_csv
from likewise.core.render.figures import FAINT_COLOUR, INK_COLOUR, Estimate, write_figure
from likewise.core.settings import Bench
from likewise.papers.benchmark_table import BenchmarkTable, label
from likewise.papers.figures import figure_function
from likewise.papers.grid import Grid, place_of
from likewise.papers.grid_plan import PlannedRun
from likewise.papers.published import Number

styled = rc_context({
    "figure.facecolor": "white", "text.color": INK_COLOUR, "text.parse_math": False, "axes.labelcolor": INK_COLOUR,
    "axes.labelsize": 9, "axes.titlecolor": INK_COLOUR, "axes.titlelocation": "left", "axes.titlesize": 10,
    "legend.fontsize": 9, "legend.frameon": False,
})  # fmt: skip
"""Decorator of the functions that draw a figure: colours and sizes of its texts."""

REGULARISED_PREFIX = "R-"
"""How the names of rows with rho-regularisation begin, in the tables of the study and here."""

DISTANCE_SUFFIX = " (D)"
"""How the names of rows with distance-weighted mining end: the partners of the regularised rows."""


class SeedGroup(NamedTuple):
    """The finished trainings of one cell: name of its row (and column), names on the axes, score, and published number."""

    row: str
    names: dict[str, str]
    score: Estimate
    printed: Number | None
    runs: list[PlannedRun]


class FinishedTable(NamedTuple):
    """What a figure is drawn from: the grid, its table, its finished trainings (`done`) and the settings of bench."""

    grid: Grid
    sheet: BenchmarkTable
    done: Sequence[PlannedRun]
    config: Bench

    @property
    def metric(self) -> str:
        """The first metric of the grid."""
        return self.done[0].job.config.metrics[0]

    @property
    def data_name(self) -> str:
        """The short name of the data set, for the title of a figure."""
        return Path(self.done[0].job.config.data.split("(")[0]).stem

    def seed_groups(self) -> list[SeedGroup]:
        """Return for every cell with finished seeds the group of its trainings."""
        entries = {(e.row, e.column[:-1]): e for e in self.sheet.entries if e.column[-1] == self.metric and e.values}
        runs: dict[tuple, list[PlannedRun]] = {}
        for t in self.done:
            runs.setdefault(place_of(self.grid, t.cell.names), []).append(t)
        groups = []
        for place, trained in runs.items():
            if place in entries:
                one, (row, column) = entries[place], place
                score = Estimate.of([one.scale * value for value in one.values])
                groups.append(SeedGroup(label([*row, *column]), trained[0].cell.names, score, one.printed, trained))
        return groups


class Drawing(NamedTuple):
    """A figure (None if there is nothing to draw, bytes of a PNG file that exists), notes on it, and its values.

    `values`: name of a CSV file -> its columns and lines.
    """

    figure: Figure | bytes | None
    notes: list[str]
    values: Mapping[str, tuple[list[str], list[list]]] = MappingProxyType({})


def write_drawing(name: str, table: FinishedTable) -> tuple[bytes | None, list[str]]:
    """Draw a figure by its name in `then`, write NAME.png and its values, and return the PNG (or None) and the notes."""
    drawn = figure_function(name)(table)
    for file, (columns, lines) in drawn.values.items():
        write_csv(table.sheet.folder / f"{file}.csv", columns, lines)
    if isinstance(drawn.figure, Figure):
        return write_figure(drawn.figure, table.sheet.folder / f"{name}.png"), drawn.notes
    return drawn.figure, drawn.notes


def dress(axes: Axes, title: str, below: str = "", beside: str = "", rules: Literal["x", "y", "both"] = "both") -> None:
    """Give a panel its title, the labels of its axes, thin rules, and a frame at the left and at the bottom."""
    axes.set(title=title, xlabel=below, ylabel=beside, axisbelow=True)
    axes.tick_params(labelsize=8, colors=INK_COLOUR)
    axes.grid(axis=rules, color=FAINT_COLOUR, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def name_beside(axes: Axes, name: str, point: tuple[float, float], height: float) -> None:
    """Write the name of a point to the right of the plot, at a height in data units, with a thin line between them."""
    line = {"arrowstyle": "-", "color": FAINT_COLOUR, "lw": 0.8, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
    axes.annotate(
        name, point, (1.03, height), textcoords=axes.get_yaxis_transform(), va="center", fontsize=8, annotation_clip=False,
        zorder=1.5, arrowprops=line,
    )  # fmt: skip


def partners(rows: Iterable[str]) -> dict[str, str]:
    """Return row without rho-regularisation -> its row with it: "R-X" is the partner of "X (D)", or else of "X"."""
    rows = list(rows)
    found = {}
    for name in rows:
        bare = name.removeprefix(REGULARISED_PREFIX)
        plain = next((row for row in (bare + DISTANCE_SUFFIX, bare) if row in rows), None)
        if bare != name and plain:
            found[plain] = name
    return found
