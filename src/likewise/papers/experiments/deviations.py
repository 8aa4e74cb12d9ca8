"""Differences between a training of a grid and what the paper states, and settings that no source states.

A training differs from the paper where it differs from the shipped table (--set, a file, an own grid), where its recipe has a
value with the source "ours", and where the grid or one of its points has the key `differs`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from likewise.core.settings import SETTINGS_OUTSIDE_IDENTITY, SPECS, Train, merged_settings
from likewise.core.settings.spec import brief, canonical
from likewise.learn.recipes import NO_RECIPE, Recipe, read
from likewise.papers.experiments.grid_types import SEED_AXIS, Cell
from likewise.papers.render.row_notes import RowNote, notes_by_rows

MAX_LISTED_VALUES = 2
"""Largest number of values of a setting that a note lists."""


class Difference(NamedTuple):
    """A setting, its value here and in the paper; or only a text, under the setting ""."""

    setting: str
    here: str
    there: str = ""

    @property
    def text(self) -> str:
        return f"{self.setting} {self.here}, not {self.there}" if self.setting else self.here


def counterpart(cell: Cell, paper: Sequence[Cell]) -> Cell | None:
    """Return the cell of the paper with the same published numbers, by its keys, not its names; None without a "method" key."""
    alike = [c for c in paper if "method" in cell.published and cell.published.items() <= c.published.items()]
    return min(alike, key=lambda one: len(one.published), default=None)


def differences(cell: Cell, here: Train, published: Cell | None, there: Train | None) -> tuple[Difference, ...]:
    """Return all differences of a cell from the paper.

    Args:
        here: the checked settings of the cell.
        published: the cell of the shipped table with the same published numbers; None: the paper has no such cell.
        there: the checked settings of that cell.
    """
    changed = changes(there, here) if there else ()
    ours = [key for key in by_source(cell, "ours") if key not in {one.setting for one in changed}]
    texts = [f"{', '.join(ours)}: {read_recipe(cell).differs or 'ours'}"] if ours else []
    texts += [*(published.differs if published else ()), *cell.differs]
    return (*changed, *(Difference("", text) for text in dict.fromkeys(texts)))


def changes(there: Train, here: Train) -> tuple[Difference, ...]:
    """Return the settings that change what is learned and differ; specs are abbreviated, and the seed does not count."""
    names = [f.name for f in fields(Train) if f.name == "data" or f.name not in (*SETTINGS_OUTSIDE_IDENTITY, SEED_AXIS)]
    sides = {name: (getattr(here, name), getattr(there, name)) for name in names}
    return tuple(
        Difference(name, _brief(name, a), _brief(name, b))
        for name, (a, b) in sides.items()
        if _written(name, a) != _written(name, b)
    )


def assumed(cell: Cell) -> tuple[str, ...]:
    """Return the settings of a cell that no source states, each with its value."""
    recipe = read_recipe(cell)
    return tuple(f"{key} {_brief(key, recipe.values[key])}" for key in by_source(cell, "assumed"))


def by_source(cell: Cell, source: str) -> list[str]:
    """Return the settings that a cell takes from its recipe and that have this source there."""
    recipe = read_recipe(cell)
    used = merged_settings(recipe.values, {key: value for key, value in cell.settings.items() if key != "recipe"})
    return [key for key, one in recipe.source.items() if one == source and key in used and key not in cell.settings]


def read_recipe(cell: Cell) -> Recipe:
    """Return the recipe of a cell for its data; an empty one if the cell has none."""
    name = cell.settings.get("recipe")
    return read(str(name), str(cell.settings.get("data"))) if name else NO_RECIPE


def notes_on_differences(rows: dict[str, list[Difference]]) -> tuple[RowNote, ...]:
    """Return row -> differences as notes. A setting of all rows that differ is one text with at most two values of each side."""
    shared: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for one in (one for own in rows.values() for one in own if one.setting):
        if all(any(other.setting == one.setting for other in own) for own in rows.values() if own):
            here, there = shared.setdefault(one.setting, ({}, {}))
            here[one.here], there[one.there] = None, None
    common = {name: Difference(name, _some(here), _some(there)) for name, (here, there) in shared.items()}
    return notes_by_rows({row: [common.get(one.setting, one).text for one in own] for row, own in rows.items()})


def _some(values: dict[str, None]) -> str:
    listed = list(values)
    return " or ".join(listed[:MAX_LISTED_VALUES]) + " or others" * (len(listed) > MAX_LISTED_VALUES)


def _written(name: str, value: object) -> object:
    """Return a spec in one way of writing it; the values of other settings as they are."""
    if isinstance(value, tuple):
        return tuple(_written(name, one) for one in value)
    return canonical(value) if isinstance(value, str) and name in SPECS else value


def _brief(name: str, value: object) -> str:
    """Return a value as text: specs without arguments at their defaults, paths without their folders."""
    if isinstance(value, tuple):
        return " + ".join(_brief(name, one) for one in value) or "none"
    if isinstance(value, str) and name in SPECS:
        return re.sub(r"'[^']*/([^'/]+)'", r"'\1'", brief(value))
    return "none" if value is None else Path(value).name if isinstance(value, str) else str(value)
