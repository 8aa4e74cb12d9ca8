"""The settings: every one explained, every one a flag with its default; Python values as settings; specs and durations."""

import dataclasses
import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest
import torch
from likewise.config import SETTINGS_OUTSIDE_IDENTITY, SPECS, Evaluate, Noise, Report, Search, Train, check, to_dict
from likewise.errors import LikewiseError

from likewise import config as configs
from likewise import losses, noise, terms
from likewise.cli import main as cli
from likewise.cli.flags import field_texts
from likewise.core.settings.field_types import Computation, Duration, Spec, duration_fields, spec_fields, texts_of
from likewise.core.settings.setting_values import from_dict, make_config, plain_settings
from likewise.runs.folder import Run

KINDS = {command: cli.config_class(command) for command in cli.COMMANDS}


def test_every_command_has_its_config():
    modules = [importlib.import_module(f"likewise.config.{found.name}") for found in iter_modules(configs.__path__)]
    defined = {kind for module in modules for kind in vars(module).values() if dataclasses.is_dataclass(kind)}
    ours = {kind for kind in defined if kind.__module__.startswith("likewise.")}
    assert set(KINDS.values()) == {kind for kind in ours if kind.__module__ != Computation.__module__}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda k: k.__name__)
def test_every_field_is_explained(kind):
    texts = field_texts(kind)
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
    learned = [
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
        "chunk_size",
    ]
    assert not {*learned, "color_jitter", "short_side"} & set(SETTINGS_OUTSIDE_IDENTITY)
    only_faster = "execution cache cache_memory recompute gpus shard_proxies workers checkpoint_every"
    assert set(only_faster.split()) <= set(SETTINGS_OUTSIDE_IDENTITY)


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


def test_values_become_what_flags_would_be(tmp_path):
    made = make_config(
        Train, data=tmp_path, loss=losses.Triplet(margin=0.1), terms=[terms.SelfDistillation], steps=40, seed=np.int64(3),
        lr=torch.tensor(0.5), metrics="R@1", crop_scale=[0.2, 1.0], freeze_bn=np.bool_(True), warmup=np.int32(2), dim=4,
    )  # fmt: skip
    assert made == Train(
        data=str(tmp_path), loss=made.loss, terms=("SelfDistillation()",), steps=40, seed=3, lr=0.5, metrics=("R@1",),
        crop_scale=(0.2, 1.0), freeze_bn=True, warmup="2", dim=4,
    )  # fmt: skip
    assert made.loss.startswith("Triplet(margin=0.1") and type(made.seed) is int and made.freeze_bn is True
    assert make_config(Noise, data="d", model=noise.Uniform(share=0.2), out=Path("n.csv")).model.startswith("Uniform(")


def test_runs_are_paths_and_one_stands_for_several(tmp_path):
    run = Run(tmp_path / "run")
    assert make_config(Report, runs=run).runs == (str(run.path),)
    assert make_config(Report, runs=[run, "z.npz"]).runs == (str(run.path), "z.npz")
    assert make_config(Search, target=run, query=3, remove=np.array([1, 2])) == Search(
        str(run.path), query="3", remove=(1, 2)
    )


def test_a_name_that_is_no_setting_suggests_the_nearest():
    with pytest.raises(LikewiseError, match=r"train has no setting 'loss_function'.*It takes: data, root"):
        plain_settings(Train, {"loss_function": "Triplet()"})
    with pytest.raises(LikewiseError, match=r"has no setting 'metric'; did you mean 'metrics'\?"):
        plain_settings(Evaluate, {"metric": ("R@1",)})


def test_a_setting_that_takes_numbers_or_text_keeps_numbers():
    @dataclass
    class Both:
        value: int | str = 0

    Both.__annotations__["value"] = int | str
    assert plain_settings(Both, {"value": 3}) == {"value": 3}


class Mine(losses.Triplet):
    """A loss of the user's own."""


def test_a_class_of_ones_own_keeps_its_module_and_a_function_is_refused():
    assert plain_settings(Train, {"loss": Mine})["loss"] == f"{__name__}.Mine()"
    assert plain_settings(Train, {"loss": losses.Triplet})["loss"] == "Triplet()"
    with pytest.raises(LikewiseError, match="cannot be the function .*; name it as text"):
        plain_settings(Train, {"loss": test_a_class_of_ones_own_keeps_its_module_and_a_function_is_refused})


def test_a_single_value_stands_for_a_tuple_of_one():
    assert plain_settings(Search, {"remove": 5})["remove"] == (5,)


def test_specs_of_a_training():
    assert spec_fields(Train) == (*SPECS, "loggers")
    assert SPECS == ("loss", "relevance", "sampler", "protocol", "confidence", "terms", "noise", "head")
    assert spec_fields(Noise) == ("model", "protocol")


def test_durations_of_a_training():
    want = ("warmup", "schedule_every", "validate_every", "test_every", "checkpoint_every")
    assert duration_fields(Train) == want


def test_marks_are_found_inside_unions_and_tuples():
    @dataclass
    class Config:
        a: Spec
        b: Spec | None = None
        c: tuple[Spec, ...] = ()
        d: str = "spec"
        e: Duration | None = None

    assert (spec_fields(Config), duration_fields(Config)) == (("a", "b", "c"), ("e",))
    assert texts_of(Config("one", None, ("two", "three")), ("a", "b", "c")) == ["one", "two", "three"]
