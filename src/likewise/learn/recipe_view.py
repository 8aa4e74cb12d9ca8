"""Recipes on the terminal: one with all its values, or the differences between two, with the source of every value."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from likewise.core.notebook import table, view
from likewise.core.render.tables import escape
from likewise.core.settings import ShowRecipe, check
from likewise.learn.recipes import Recipe, command, difference, read, read_pair

NO_VALUE = "-"
"""Text for a setting that is off, or that depends on the data."""


@dataclass(frozen=True)
class ShownRecipe:
    """A recipe, the data set whose values it shows, and the equivalent command."""

    recipe: Recipe
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

    a: Recipe
    b: Recipe
    settings: dict[str, tuple]
    data: str | None

    @view
    def _repr_html_(self) -> str:
        lines = [(key, *(words(value) for value, _ in sides)) for key, sides in self.settings.items()]
        notes = [f"values for {self.data}"] if self.data else []
        return table(f"{self.a.title} and {self.b.title}", ("setting", self.a.name, self.b.name), lines, notes)


def show_recipe(config: ShowRecipe, say=print) -> ShownRecipe | RecipeDifference:
    """Return a recipe with the source of every value and the equivalent command, or the settings in which two differ."""
    check(config)
    if config.other is None:
        recipe = read(config.name, config.data)
        return ShownRecipe(recipe, config.data, command(recipe, config.data or "DATA"))
    a, b, data = read_pair(config.name, config.other, config.data)
    return RecipeDifference(a, b, difference(a, b), data)


def print_recipe(found: ShownRecipe | RecipeDifference, config: ShowRecipe) -> None:
    """Print a recipe: its paper, its values, the equivalent command, and how to change a value; or a difference."""
    if isinstance(found, RecipeDifference):
        return print_difference(found)
    recipe, data = found.recipe, found.data
    console = Console(highlight=False)
    console.print(f"[bold]{escape(recipe.title)}[/]  ({escape(recipe.name)}{f', for {escape(data)}' if data else ''})")
    for line in filter(None, (recipe.paper, recipe.note)):
        console.print(escape(line))
    table = Table("setting", "value", "from")
    for key, value in recipe.values.items():
        table.add_row(key, Text(words(value)), recipe.source[key])
    console.print(table)
    if data and data.split("(")[0] not in recipe.data_sets:
        console.print(f"it has no values for {escape(data)}: these are the values for all data")
    if recipe.data_sets:
        console.print(f"other values for: {', '.join(recipe.data_sets)} (--data NAME)")
    print(found.command)
    start = found.command.split(" \\\n")[0]
    print(
        f"to change a value, add its flag, which replaces the whole value: {start} --recipe {recipe.name} --FLAG VALUE"
    )


def print_difference(found: RecipeDifference) -> None:
    """Print the settings in which two recipes differ, and the names of the settings with equal values."""
    a, b, different, data = found.a, found.b, found.settings, found.data
    console = Console(highlight=False)
    for one in (a, b):
        console.print(f"[bold]{escape(one.title)}[/]  ({escape(one.name)})")
    if different:
        table = Table("setting", *(Column(escape(one.name), overflow="fold") for one in (a, b)))
        for key, sides in different.items():
            table.add_row(key, *(_sourced(one, *side) for one, side in zip((a, b), sides)))
        console.print(table)
    else:
        console.print("They do not differ.")
    equal = [key for key in a.source if key in b.source and key not in different]
    if equal:
        console.print(f"the same in both: {', '.join(equal)}", style="dim")
    others = dict.fromkeys(name for one in (a, b) for name in one.data_sets)
    if data or others:
        print(f"values for {data}" if data else f"other values for: {', '.join(others)} (--data NAME)")


def _sourced(recipe, value: object, source: str) -> Text:
    """Return a value with its source; without the source if all values come from a run."""
    known = set(recipe.source.values()) - {"run"}
    return Text.assemble(words(value), (f" ({source})" if known else "", "dim"))


def words(value: object) -> str:
    """Return a value as text; several specs are separated by line breaks."""
    if value is None or value == ():
        return NO_VALUE
    if isinstance(value, tuple):
        return ("\n" if isinstance(value[0], str) and "(" in value[0] else " ").join(map(str, value))
    return str(value)
