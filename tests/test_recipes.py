"""Every recipe file: known keys, known sources, parts that build, and a command that says the same."""

import dataclasses
import shlex
import tomllib
from importlib.resources import files

import numpy as np
import pytest
from torch import nn

from likewise import cli, losses, recipes
from likewise.configs import Train
from likewise.contracts import BatchSampler, Loss, NoiseModel, Protocol
from likewise.data import NAMES
from likewise.errors import LikewiseError
from likewise.miners import DistanceWeighted, Switch
from likewise.optimise import steps_of
from likewise.spec import build

FIELDS = {f.name: f for f in dataclasses.fields(Train)}
KINDS = {"loss": Loss, "sampler": BatchSampler, "protocol": Protocol, "noise": NoiseModel, "head": nn.Module}
EVERY = [(name, data) for name in recipes.names() for data in (None, *recipes.read(name).data_sets)]


def raw(name):
    return tomllib.loads((files("likewise.recipes") / f"{name}.toml").read_text("utf-8"))


def test_there_are_recipes():
    assert {"demo", "proxy-anchor", "multi-similarity", "triplet", "contrastive", "norm-softmax"} <= set(
        recipes.names()
    )


@pytest.mark.parametrize("loss", losses.__all__)
def test_every_loss_has_a_recipe(loss):
    assert any(recipes.read(name).values["loss"].startswith(f"{loss}(") for name in recipes.names() if name != "demo")


@pytest.mark.parametrize("name", [n for n in recipes.names() if n != "demo"])
def test_every_recipe_can_be_tried_on_the_glyphs(name):
    """On a laptop, without pretrained weights, and proxies that keep up with a network that starts from nothing."""
    values = recipes.read(name, "glyphs").values
    assert values["backbone"] == "conv_small" and values["freeze_bn" if "freeze_bn" in values else "size"] in (
        False,
        40,
    )
    assert values.get("eps", 1e-8) == 1e-8 and values.get("warmup", "0") == "0"
    loss = build(values["loss"], Loss, classes=60, dim=8)
    assert ("loss_lr" in values) == any(True for _ in loss.parameters())
    assert values.get("loss_lr", 1e-3) == 1e-3


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("rho-contrastive", (0.4, 0.35, 0.15)),
        ("rho-triplet", (0.4, 0.35, 0.15)),
        ("rho-margin", (0.35, 0.35, 0.15)),
        ("rho-snr", (0.3, 0.35, 0.15)),
    ],
)
def test_rho_recipes_switch_the_share_of_each_data_set(name, shares):
    for data, share in zip(("cub200", "cars196", "sop"), shares):
        loss = build(recipes.read(name, data).values["loss"], Loss, classes=60, dim=8)
        assert isinstance(loss.miner, Switch) and loss.miner.share == share
        assert isinstance(loss.miner.miner, DistanceWeighted)
        plain = recipes.read(name.removeprefix("rho-")).values
        assert recipes.read(name).values.keys() == plain.keys()


@pytest.mark.parametrize("name", recipes.names())
def test_keys_sources_and_data_sets_are_known(name):
    content = raw(name)
    assert content["title"]
    assert isinstance(content["paper"], str)
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    assert "values" in tables
    assert set(tables) - {"values"} <= set(NAMES)
    for table, values in tables.items():
        for key, entry in values.items():
            assert key in FIELDS, f"[{table}] {key} is no setting of train"
            value, source = entry
            assert source in recipes.SOURCES, f"[{table}] {key} comes from {source}"
            assert source == "ours" or content["paper"], "a value from a paper needs the paper"
            assert value is not None
    if name != "demo":
        assert set(recipes.read(name).source.values()) & {"paper", "code"}


@pytest.mark.parametrize(("name", "data"), EVERY)
def test_every_part_builds(name, data):
    values = recipes.read(name, data).values
    facts = {"classes": 70, "dim": 8, "features": 16, "labels": np.repeat(np.arange(70), 6), "seed": 0}
    for key, kind in KINDS.items():
        if key in values:
            build(values[key], kind, **facts)
    for key in ("length", "warmup", "schedule_every", "validate_every", "checkpoint_every"):
        if key in values:
            assert steps_of(values[key], 10, key) >= 0


@pytest.mark.parametrize(("name", "data"), EVERY)
def test_the_printed_command_gives_the_same_settings(name, data):
    """As a shell would cut it into words."""
    data = data or "my data (new)"
    recipe = recipes.read(name, data)
    words = shlex.split(recipes.command(recipe, data).replace("\\\n", " "))
    assert words[:2] == ["likewise", "train"]
    assert words[2] == data
    parsed = cli.parse("train", words[2:])
    assert parsed == dataclasses.replace(recipes.apply(name, data), recipe=None)


def test_values_of_every_type_survive_the_command():
    values = {
        "crop_scale": (0.2, 1.0), "metrics": ("R@1", "MAP@R"), "pretrained": False, "freeze_bn": True,
        "evaluate": False, "lr": 1e-5, "clip_norm": 1.0, "dim": 64, "pool": "avg+max", "noise": "Uniform(share=0.3)",
        "weights": "my file.pt",
    }  # fmt: skip
    made = recipes.Recipe("x", "X", "", "", values, dict.fromkeys(values, "ours"), ())
    words = shlex.split(recipes.command(made, "glyphs(classes=20)").replace("\\\n", " "))
    assert cli.parse("train", words[2:]) == Train(data="glyphs(classes=20)", **values)


def test_a_data_set_has_its_own_values_with_or_without_arguments():
    plain, glyphs = recipes.read("proxy-anchor"), recipes.read("proxy-anchor", "glyphs(classes=20)")
    assert plain.values["backbone"] == "bn_inception"
    assert glyphs.values["backbone"] == "conv_small"
    assert glyphs.source["backbone"] == "ours"
    assert plain.source["backbone"] == "paper"
    assert "sop" in plain.data_sets


def test_what_is_given_beside_a_recipe_wins():
    config = recipes.apply("triplet", "cub200", lr=0.5)
    assert config.lr == 0.5
    assert config.recipe == "triplet"
    assert config.freeze_bn is True
    parsed = cli.parse("train", ["cub200", "--recipe", "triplet", "--lr", "0.5", "--no-freeze-bn"])
    assert parsed == dataclasses.replace(config, freeze_bn=False)
    assert cli.parse("train", ["cub200", "--lr", "0.5", "--no-freeze-bn", "--recipe=triplet"]) == parsed


def test_a_recipe_given_as_flag_equals_the_recipe_in_python():
    for name, data in EVERY:
        data = data or "folder"
        assert cli.parse("train", [data, "--recipe", name]) == recipes.apply(name, data)


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(
        LikewiseError, match=r"there is no 'proxy_anchor'; did you mean 'proxy-anchor'.*There are: angular"
    ):
        recipes.read("proxy_anchor")
    with pytest.raises(LikewiseError, match=r"there is no '../triplet'"):
        recipes.read("../triplet")
