"""Types of a grid: settings, axes of named points, cells. grid.py reads and changes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from likewise.papers.experiments.figures import FIGURE_KINDS

SEED_AXIS = "seed"
"""Name of the axis over which the table takes means."""

Place = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of a row, and of a column without its metric."""


@dataclass(frozen=True)
class Point:
    """One point of an axis: its name and settings, keys of published numbers, and values for "{name}" in other axes (`let`).

    `differs`: how its trainings differ from what the paper states; "" if they do not.
    """

    name: str
    settings: dict[str, object]
    published: dict[str, str] = field(default_factory=dict)
    let: dict[str, str] = field(default_factory=dict)
    differs: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell of a grid: its name on each axis, its settings, the keys of its published numbers, and texts on differences."""

    names: dict[str, str]
    settings: dict[str, object]
    published: dict[str, str] = field(default_factory=dict)
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """The content of a grid file. `published`: paper, table and perhaps data set; `quick`: the table [quick].

    `published_only`: printed method that is not trained -> the reason. `differs`: how all its trainings differ from the paper.
    `first`: names of points that are trained before others.
    """

    title: str
    settings: dict[str, object]
    axes: dict[str, list[Point]]
    ranges: dict[str, str]
    name: str = ""
    note: str = ""
    columns: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    published: dict[str, str] = field(default_factory=dict)
    published_metrics: dict[str, str] = field(default_factory=dict)
    published_scores: dict[str, str] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    published_only: dict[str, str] = field(default_factory=dict)
    differs: str = ""
    first: tuple[str, ...] = ()

    @property
    def is_figure_only(self) -> bool:
        """Whether the grid trains nothing: it has no settings and no axes, and its figures are drawn at once."""
        return bool(self.then) and not self.settings and not self.axes

    @property
    def is_figure(self) -> bool:
        """Whether a figure leads its page; its table has the printed numbers of its own cells, not all of the printed table."""
        return any(FIGURE_KINDS[name].leads for name in self.then)


def rows_of(grid: Grid) -> list[str]:
    """Return the axes that are rows of the table; ["setting"] if there is none."""
    return [axis for axis in grid.axes if axis != SEED_AXIS and axis not in grid.columns] or ["setting"]


def place_of(grid: Grid, names: dict[str, str]) -> Place:
    """Return the row and the column of a training in the table."""
    row = tuple(names.get(axis, "all the same") for axis in rows_of(grid))
    return row, tuple(names[axis] for axis in grid.axes if axis in grid.columns)


def cell_name(cell: Cell) -> str:
    """Return the axes and names of a cell as text."""
    return ", ".join(f"{axis} {name}" for axis, name in cell.names.items()) or "the one cell"
