"""`likewise recipe show` and `likewise recipe diff`: settings from papers, and where they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from likewise.core.settings import RecipeDiff, RecipeShow, check

if TYPE_CHECKING:
    from likewise.learn.recipe_view import RecipeDifference, ShownRecipe


def show(config: RecipeShow, say=print) -> ShownRecipe:
    """Return a recipe: every value with its source, and the equivalent command."""
    check(config)
    from likewise.learn.recipe_view import ShownRecipe
    from likewise.learn.recipes import command, read

    recipe = read(config.name, config.data)
    return ShownRecipe(recipe, config.data, command(recipe, config.data or "DATA"))


def diff(config: RecipeDiff, say=print) -> RecipeDifference:
    """Return the settings in which two recipes, or a recipe and a run, differ."""
    check(config)
    from likewise.learn.recipe_view import RecipeDifference
    from likewise.learn.recipes import difference, read_pair

    a, b, data = read_pair(config.a, config.b, config.data)
    return RecipeDifference(a, b, difference(a, b), data)
