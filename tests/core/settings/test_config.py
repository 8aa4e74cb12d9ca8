"""The settings: every one explained, every one a flag with its default."""

import ast
import dataclasses
import importlib
import inspect
import json
from pkgutil import iter_modules

import pytest
from likewise.config import SETTINGS_OUTSIDE_IDENTITY, Train, check, to_dict
from likewise.types import LikewiseError

from likewise import config as configs
from likewise.cli import main as cli
from likewise.core.settings.checks import from_dict

KINDS = {command: cli.config_class(command) for command in cli.COMMANDS}


def texts_below(kind):
    """Return field -> the text below it in the source of the config or of its base classes."""
    found = {}
    for owner in reversed([one for one in kind.__mro__ if dataclasses.is_dataclass(one)]):
        nodes = ast.parse(inspect.getsource(inspect.getmodule(owner))).body
        body = next(n for n in nodes if getattr(n, "name", "") == owner.__name__).body
        for node, after in zip(body, [*body[1:], None]):
            if isinstance(node, ast.AnnAssign):
                text = (
                    after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
                )
                found[node.target.id] = " ".join(text.split())
    return found


def test_every_command_has_its_config():
    modules = [importlib.import_module(f"likewise.config.{found.name}") for found in iter_modules(configs.__path__)]
    defined = {kind for module in modules for kind in vars(module).values() if dataclasses.is_dataclass(kind)}
    assert set(KINDS.values()) == {kind for kind in defined if kind.__module__ != "likewise.core.settings.shared"}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda k: k.__name__)
def test_every_field_is_explained(kind):
    texts = texts_below(kind)
    fields = {f.name for f in dataclasses.fields(kind)}
    assert set(texts) == fields
    assert kind.__doc__
    for name, text in texts.items():
        assert text.endswith((".", ")", "?")), f"{kind.__name__}.{name}: {text!r}"
        assert len(text) > 8, f"{kind.__name__}.{name}: {text!r}"


def test_what_is_kept_out_of_a_runs_identity_are_settings():
    fields = {f.name for f in dataclasses.fields(Train)}
    assert set(SETTINGS_OUTSIDE_IDENTITY) <= fields
    assert len(set(SETTINGS_OUTSIDE_IDENTITY)) == len(SETTINGS_OUTSIDE_IDENTITY)
    learned = {
        "loss",
        "sampler",
        "noise",
        "backbone",
        "dim",
        "head",
        "lr",
        "epochs",
        "steps",
        "seed",
        "protocol",
        "weights",
        "precision",
        "color_jitter",
        "short_side",
        "chunk_size",
    }
    assert not learned & set(SETTINGS_OUTSIDE_IDENTITY)
    only_faster = {
        "execution",
        "cache",
        "cache_memory",
        "recompute",
        "gpus",
        "shard_proxies",
        "workers",
        "checkpoint_every",
    }
    assert only_faster <= set(SETTINGS_OUTSIDE_IDENTITY)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunk_size", 0),
        ("gpus", 0),
        ("gpus", -1),
        ("execution", "fast"),
        ("cache", "ram"),
        ("color_jitter", (0.1,)),
        ("workers", 10000),
        ("gpus", 10000),
        ("dim", 10**20),
        ("lr", 10**400),
        ("out", "a\0b"),
        ("terms", ("a", "\0")),
    ],
)
def test_a_setting_out_of_its_range_is_named(unchecked, name, value):
    with pytest.raises(LikewiseError, match=rf"{name}\b.*got"):
        check(Train(data="x", **{name: value}))


def test_a_config_becomes_json_and_comes_back():
    config = Train(
        data="x",
        metrics=("R@1",),
        crop_scale=(0.2, 1.0),
        color_jitter=(0.4, 0.4, 0.0),
        noise="Uniform(share=0.1)",
        gpus=2,
    )
    stored = json.loads(json.dumps(to_dict(config)))
    assert from_dict(Train, stored) == config
