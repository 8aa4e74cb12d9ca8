"""The file that bench and tune read: what it says, what it refuses, and that it comes back as it was written."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from likewise.configs import Train
from likewise.contracts import BatchSampler, Confidence, Loss, NoiseModel
from likewise.errors import LikewiseError
from likewise.grid import Grid, as_train, cells, read_grid, settings_of, toml
from likewise.spec import build

EXAMPLES = Path(__file__).parent.parent / "examples"

TEXT = """
title = "a study"
[settings]
data = "glyphs"
length = 40
crop_scale = [0.2, 1.0]
augment = "none"
lr = 1e-3
[axes]
loss = ["MultiSimilarity()", "Triplet(margin=0.2)"]
noise = ["none", "Uniform(share=0.3)"]
seed = [0, 1, 2]
[[axes.method]]
name = "ours"
lr = 0.01
dim = 64
[[axes.method]]
name = "theirs"
[ranges]
lr = "1e-5..1e-2 log"
loss.miner.eps = "0..0.5"
"loss.base" = "0..1"
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        file = tmp_path / "my grid.toml"
        file.write_text(text, "utf-8")
        return read_grid(file)

    return read


def test_every_combination_is_a_cell_by_hand(read):
    grid = read(TEXT)
    assert grid.title == "a study"
    assert grid.ranges == {"lr": "1e-5..1e-2 log", "loss.miner.eps": "0..0.5", "loss.base": "0..1"}
    expected = []
    axes = (["MultiSimilarity()", "Triplet(margin=0.2)"], ["none", "Uniform(share=0.3)"], [0, 1, 2], ["ours", "theirs"])
    for loss, noise, seed, method in itertools.product(*axes):
        settings = {"data": "glyphs", "length": "40", "crop_scale": (0.2, 1.0), "augment": "none", "lr": 1e-3}
        settings |= {"loss": loss, "noise": None if noise == "none" else noise, "seed": seed}
        settings |= {"lr": 0.01, "dim": 64} if method == "ours" else {}
        expected.append(({"loss": loss, "noise": noise, "seed": str(seed), "method": method}, settings))
    assert [(c.names, c.settings) for c in cells(grid)] == expected


def test_a_file_without_axes_is_one_cell(read):
    (cell,) = cells(read('[settings]\ndata = "glyphs"'))
    assert cell.names == {}
    assert as_train(cell.settings) == Train(data="glyphs")


def test_axis_wins_over_settings_and_both_over_the_recipe(read):
    grid = read('[settings]\ndata = "cub200"\nlr = 0.5\n[axes]\nrecipe = ["margin", "triplet"]\ndim = [32]')
    first, second = (as_train(c.settings, device="cpu") for c in cells(grid))
    assert (first.recipe, second.recipe) == ("margin", "triplet")
    assert first.loss.startswith("Margin(") and second.loss.startswith("Triplet(")
    assert first.lr == second.lr == 0.5  # the recipes say 1e-5
    assert first.dim == 32
    assert first.weight_decay == 4e-4  # the recipe's own
    assert first.device == "cpu"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[setings]\ndata = "x"', "'setings'; did you mean 'settings'?"),
        ('data = "x"', "has 'data'; write it below the line [settings]"),
        ('settings = "x"', "settings must be a table"),
        ("[settings]\nlos = 1", "no setting 'los'; did you mean 'loss'?"),
        ("[settings]\nout = 'x'", "'out' is not for a file to say"),
        ("[settings]\nallow_imports = true", "'allow_imports' is not for a file"),
        ("[axes]\nseed = 3", "axis 'seed' must be a list"),
        ("[axes]\nseed = []", "axis 'seed' must be a list"),
        ("[axes]\nseeds = [1]", "no setting 'seeds'; did you mean 'seed'?"),
        ("[axes]\nseed = [1, 1]", "axis 'seed' has '1' twice"),
        ("[[axes.method]]\nlr = 1.0", "every table of axis 'method' needs a name"),
        ('[[axes.method]]\nname = "a"\nlearn = 1.0', "no setting 'learn'"),
        ('[axes]\nlr = [1.0]\n[[axes.method]]\nname = "a"\nlr = 2.0', "'lr' and 'method' both give 'lr'"),
        ("[ranges]\nlr = 3", 'range lr must be text such as "0..1"'),
        ("[ranges]\nloss.margin = 3", "range loss.margin must be text"),
        ("[settings", "is not TOML"),
    ],
)
def test_what_a_file_gets_wrong_is_named(read, text, words):
    with pytest.raises(LikewiseError) as error:
        read(text)
    assert words in str(error.value)


def test_a_missing_file_and_missing_or_wrong_settings_are_named(tmp_path, unchecked):
    with pytest.raises(LikewiseError, match="cannot be read"):
        read_grid(tmp_path / "none.toml")
    with pytest.raises(LikewiseError, match="data must be text, got None"):
        as_train({})
    with pytest.raises(LikewiseError, match="dim must be 1 or more, got 0"):
        as_train({"data": "x", "dim": 0})
    with pytest.raises(LikewiseError, match="loss must be text, got 3"):
        as_train({"data": "x", "loss": 3})
    with pytest.raises(LikewiseError, match="no 'margn'; did you mean 'margin'"):
        as_train({"data": "x", "recipe": "margn"})


def test_settings_come_back_from_a_config_and_from_a_file(tmp_path):
    config = Train(
        data='my "data" ü', loss="Triplet(miner=SemiHard())", crop_scale=(0.2, 1.0), lr=1e-5, freeze_bn=True, length="40",
        out="x", quiet=True, recipe="margin", device="cpu",
    )  # fmt: skip
    settings = settings_of(config)
    assert settings.keys() == {"data", "loss", "crop_scale", "lr", "freeze_bn", "length"}
    grid = Grid(
        "a title",
        settings | {"noise": None},
        {"seed": [("1", {"seed": 1}), ("2", {"seed": 2})]},
        {"loss.margin": "0..1"},
    )
    file = tmp_path / "grid.toml"
    file.write_text(toml(grid), "utf-8")
    assert read_grid(file) == grid


@pytest.mark.parametrize(("name", "trainings"), [("bench", 12), ("robust", 54), ("robust-cub", 160)])
def test_the_example_grids_are_sound(name, trainings):
    """And "none" on an axis over confidence means that every label is believed."""
    every = [as_train(cell.settings) for cell in cells(read_grid(EXAMPLES / f"{name}.toml"))]
    assert len(set(every)) == len(every) == trainings
    assert name == "bench" or {c.confidence for c in every} >= {None, "LabelPosterior()"}
    facts = {"classes": 60, "dim": 8, "labels": np.repeat(np.arange(60), 6), "class_names": ("Ovenbird", "Fish Crow")}
    for part, kind in (("loss", Loss), ("sampler", BatchSampler), ("confidence", Confidence), ("noise", NoiseModel)):
        for text in {getattr(c, part) for c in every} - {None}:
            build(text, kind, taxonomy={}, **facts)
