"""Fixtures that several tests of experiments share."""

import pytest

from likewise.config import Tune
from likewise.experiments import tune_files

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
