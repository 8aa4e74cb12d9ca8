"""Types of a grid: settings, axes of named points, cells. grid.py reads and changes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SEED_AXIS = "seed"
"""Name of the axis over which the table takes means."""

Place = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of a row, and of a column without its metric."""


@dataclass(frozen=True)
class Point:
    """One point of an axis: its name and settings, keys of published numbers, and values for "{name}" in other axes (`let`)."""

    name: str
    settings: dict[str, object]
    published: dict[str, str] = field(default_factory=dict)
    let: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One cell of a grid: its name on each axis, its settings, and the keys of its published numbers."""

    names: dict[str, str]
    settings: dict[str, object]
    published: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """The content of a grid file. `published`: paper, table and perhaps data set; `quick`: the table [quick]."""

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


def rows_of(grid: Grid) -> list[str]:
    """Return the axes that are rows of the table; ["setting"] if there is none."""
    return [axis for axis in grid.axes if axis != SEED_AXIS and axis not in grid.columns] or ["setting"]


def place_of(grid: Grid, names: dict[str, str]) -> Place:
    """Return the row and the column of a training in the table."""
    row = tuple(names.get(axis, "all the same") for axis in rows_of(grid))
    return row, tuple(names[axis] for axis in grid.axes if axis in grid.columns)
