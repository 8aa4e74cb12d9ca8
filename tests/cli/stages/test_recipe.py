from likewise.config import RecipeDiff, RecipeShow

from likewise.cli.stages.recipe import diff, show


def test_a_recipe_with_its_command():
    found = show(RecipeShow("triplet", "cub200"))
    assert found.command.startswith("likewise train cub200") and found.recipe.name == "triplet"
    assert "Triplet" in found._repr_html_() and "for cub200" in found._repr_html_()


def test_two_recipes_side_by_side():
    found = diff(RecipeDiff("triplet", "margin"))
    assert "loss" in found.settings and found.settings["loss"][0] != found.settings["loss"][1]
    assert "<td" in found._repr_html_() and "margin" in found._repr_html_()
    assert diff(RecipeDiff("triplet", "triplet")).settings == {}
