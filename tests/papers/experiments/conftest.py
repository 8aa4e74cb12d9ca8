"""Fixtures that several tests of experiments share."""

import json

import pytest
from likewise.config import Bench, Tune

from likewise.papers import tune as tune_files

SEARCH = """
[settings]
data = "{data}"
sampler = "SamplesPerClass(batch=16, per_class=4)"
dim = 8
steps = 8
validate_every = 4
protocol = "{protocol}"
"""


@pytest.fixture
def search_config(features, tmp_path, monkeypatch):
    """Settings of tune on the features, two folds, few steps, and no time spent on pictures."""
    monkeypatch.setattr(tune_files, "draw_search", lambda file, *_: file.touch())

    def config(*ranges, protocol="ClassFolds(folds=2)", **settings):
        file = tmp_path / "config.toml"
        file.write_text(SEARCH.format(data=features, protocol=protocol), "utf-8")
        usual = {"out": str(tmp_path / "out"), "trials": 3, "device": "cpu", "quiet": True, "pruner": "none"}
        return Tune(str(file), ranges=ranges or ("lr=1e-4..1e-1 log",), **usual | settings)

    return config


FOLLOWED_GRID = """
then = {then}
{top}
[settings]
data = "{data}"
sampler = "SamplesPerClass(batch=16, per_class=4)"
dim = 8
steps = {length}
lr = 3e-3
metrics = ["R@1"]
{axes}
"""


@pytest.fixture
def config(features, tmp_path):
    """Return the settings of bench for a grid with these follow-ups and axes."""

    def config(then, axes, top="", steps=12):
        file = tmp_path / "grid.toml"
        file.write_text(
            FOLLOWED_GRID.format(then=json.dumps(then), top=top, axes=axes, data=features, length=steps), "utf-8"
        )
        return Bench(str(file), out=str(tmp_path / "out"), device="cpu", quiet=True)

    return config
