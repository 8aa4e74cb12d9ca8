"""Recipes on the terminal: every value and source is there, nothing is cut, and one can go on from the last lines."""

import dataclasses

import pytest
from likewise.config import ShowRecipe

from likewise.learn.recipe_view import RecipeDifference, ShownRecipe, print_difference, print_recipe, words
from likewise.learn.recipes import NO_RECIPE, command, difference, names, read


def cells(said):
    """The rows of a table, the lines of a folded cell joined."""
    rows = []
    for line in said.splitlines():
        if line.startswith(("\u2502", "\u2503")):
            parts = [part.strip() for part in line[1:-1].replace("\u2503", "\u2502").split("\u2502")]
            if parts[0]:
                rows.append(parts)
            else:
                rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], parts)]
    return rows


@pytest.mark.parametrize("columns", [80, 120])
def test_a_recipe_is_shown_whole(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in names():
        recipe = read(name, "sop")
        print_recipe(ShownRecipe(recipe, "sop", command(recipe, "sop")), ShowRecipe("triplet"))
        said = capsys.readouterr().out
        told = " ".join(said.split())
        assert told.startswith(" ".join(f"{recipe.title} ({name}, for sop) {recipe.paper} {recipe.note}".split()))
        rows = cells(said)
        assert rows[0] == ["setting", "value", "from"]
        expected = [[key, " ".join(words(value).split()), recipe.source[key]] for key, value in recipe.values.items()]
        assert rows[1:] == expected
        assert command(recipe, "sop") in said
        assert said.splitlines()[-1].endswith(f" likewise train sop --recipe {name} --FLAG VALUE")
        assert all(len(line) <= columns for line in said.splitlines() if line.startswith(("\u2502", "\u2503")))


@pytest.mark.parametrize("columns", [80, 120])
def test_a_difference_shows_both_values_with_their_sources(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    a, b = read("proxy-anchor", "cub200"), read("drml-pa", "cub200")
    print_difference(RecipeDifference(a, b, difference(a, b), "cub200"))
    said = capsys.readouterr().out
    assert said.startswith("Proxy Anchor  (proxy-anchor)\nRelations of parts: Proxy Anchor  (drml-pa)\n")
    rows = cells(said)
    assert rows[0] == ["setting", "proxy-anchor", "drml-pa"]
    assert ["lr", "0.0001 (paper)", "0.001 (code)"] in rows and ["clip_norm", "- (default)", "10.0 (code)"] in rows
    assert ["terms", "- (default)", "Ensemble(reconstruction=1) (code)"] in rows
    assert [row[0] for row in rows[1:]] == list(difference(a, b))
    same = " ".join(said.split("the same in both: ")[1].split("values for")[0].split()).split(", ")
    assert same == [key for key in a.values if key in b.values and a.values[key] == b.values[key]]
    assert said.endswith("\nvalues for cub200\n")


def test_defaults_and_runs_need_no_word_on_their_sources(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    robust = read("robust")
    print_difference(RecipeDifference(robust, NO_RECIPE, difference(robust), None))
    said = capsys.readouterr().out
    assert cells(said)[1:] == [["confidence", "LabelPosterior() (ours)", "-"]]
    assert "the same" not in said and "values for" not in said
    run = dataclasses.replace(robust, name="runs/[a]", title="Run", values={"lr": 0.5}, source={"lr": "run"})
    print_difference(RecipeDifference(robust, run, difference(robust, run), None))
    said = capsys.readouterr().out
    assert cells(said)[0][2] == "runs/[a]" and ["lr", "0.0001 (default)", "0.5"] in cells(said)


def test_recipes_that_do_not_differ_say_so(capsys):
    margin = read("margin")
    print_difference(RecipeDifference(margin, margin, {}, None))
    said = capsys.readouterr().out
    assert "They do not differ.\n" in said and "other values for: sop, glyphs (--data NAME)" in said


def test_values_are_written_as_one_would_write_them():
    assert [words(value) for value in (None, (), True, 1e-5, "60e")] == ["-", "-", "True", "1e-05", "60e"]
    assert words(("R@1", "MAP@R")) == "R@1 MAP@R" and words((0.2, 1.0)) == "0.2 1.0"
    assert words(("A(x=1)", "B()")) == "A(x=1)\nB()"
