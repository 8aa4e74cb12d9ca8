"""A grid as data: settings, axes of named points, cells. `grid` reads and changes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SEED = "seed"
"""The axis over which means are taken."""

Place = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of a row, and of a column without its metric."""


@dataclass(frozen=True)
class Point:
    """One value of an axis: its name, the settings it stands for, the printed row it is, what others may take from it."""

    name: str
    settings: dict[str, object]
    published: dict[str, str] = field(default_factory=dict)
    let: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One point of a grid: how each axis calls it, the settings it stands for, and by what its printed number is found."""

    names: dict[str, str]
    settings: dict[str, object]
    published: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """What a file says. `published` names paper, table and, if need be, data set; `quick` is the table of that name."""

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
    """Return the axes that are rows; ["setting"] where there is none."""
    return [axis for axis in grid.axes if axis != SEED and axis not in grid.columns] or ["setting"]


def place_of(grid: Grid, names: dict[str, str]) -> Place:
    """Return the row and the column of a training in the table."""
    row = tuple(names.get(axis, "all the same") for axis in rows_of(grid))
    return row, tuple(names[axis] for axis in grid.axes if axis in grid.columns)
