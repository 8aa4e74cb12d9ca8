"""Recipes on the terminal: one with all its values, or where two of them differ. Every value with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from likewise._notebook import table, view
from likewise.render.tables import escape

NO_VALUE = "-"
"""In place of a value: a setting that is off, or left to the data."""


@dataclass(frozen=True)
class ShownRecipe:
    """A recipe, the data set it was read for, and the command that it stands for."""

    recipe: Any  # a `likewise.recipes.Recipe`
    data: str | None
    command: str

    @view
    def _repr_html_(self) -> str:
        one = self.recipe
        lines = [(key, words(value), one.source[key]) for key, value in one.values.items()]
        notes = [text for text in (one.paper, one.note, self.command) if text]
        title = f"{one.title} ({one.name}{f', for {self.data}' if self.data else ''})"
        return table(title, ("setting", "value", "from"), lines, notes)


@dataclass(frozen=True)
class RecipeDifference:
    """Two recipes, and setting -> ((value, source) of a, (value, source) of b) where they differ."""

    a: Any  # a `likewise.recipes.Recipe`, as is b
    b: Any
    settings: dict[str, tuple]
    data: str | None

    @view
    def _repr_html_(self) -> str:
        lines = [(key, *(words(value) for value, _ in sides)) for key, sides in self.settings.items()]
        notes = [f"values for {self.data}"] if self.data else []
        return table(f"{self.a.title} and {self.b.title}", ("setting", self.a.name, self.b.name), lines, notes)


def show_recipe(recipe, data: str | None, command: str) -> None:
    """What it is, its values, the command it stands for, and how to change one."""
    console = Console(highlight=False)
    console.print(f"[bold]{escape(recipe.title)}[/]  ({escape(recipe.name)}{f', for {escape(data)}' if data else ''})")
    for line in filter(None, (recipe.paper, recipe.note)):
        console.print(escape(line))
    table = Table("setting", "value", "from")
    for key, value in recipe.values.items():
        table.add_row(key, Text(words(value)), recipe.source[key])
    console.print(table)
    if data and data.split("(")[0] not in recipe.data_sets:
        console.print(f"it has no values of its own for {escape(data)}: these are for all data")
    if recipe.data_sets:
        console.print(f"other values for: {', '.join(recipe.data_sets)} (--data NAME)")
    print(command)
    start = command.split(" \\\n")[0]
    print(f"to change a value, add its flag, which replaces all of it: {start} --recipe {recipe.name} --FLAG VALUE")


def show_difference(a, b, apart: dict[str, tuple], data: str | None) -> None:
    """Two recipes side by side where they differ, and in a line where both say the same."""
    console = Console(highlight=False)
    for one in (a, b):
        console.print(f"[bold]{escape(one.title)}[/]  ({escape(one.name)})")
    if apart:
        table = Table("setting", *(Column(escape(one.name), overflow="fold") for one in (a, b)))
        for key, sides in apart.items():
            table.add_row(key, *(_sourced(one, *side) for one, side in zip((a, b), sides)))
        console.print(table)
    else:
        console.print("They do not differ.")
    alike = [key for key in a.source if key in b.source and key not in apart]
    if alike:
        console.print(f"the same in both: {', '.join(alike)}", style="dim")
    others = dict.fromkeys(name for one in (a, b) for name in one.data_sets)
    if data or others:
        print(f"values for {data}" if data else f"other values for: {', '.join(others)} (--data NAME)")


def _sourced(recipe, value: object, source: str) -> Text:
    """A value and where it comes from, which of a run's settings and of the defaults goes without saying."""
    known = set(recipe.source.values()) - {"run"}
    return Text.assemble(words(value), (f" ({source})" if known else "", "dim"))


def words(value: object) -> str:
    """A value as one would write it; several, one a line."""
    if value is None or value == ():
        return NO_VALUE
    if isinstance(value, tuple):
        return ("\n" if isinstance(value[0], str) and "(" in value[0] else " ").join(map(str, value))
    return str(value)
