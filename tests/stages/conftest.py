"""Small data that trains in seconds: clustered features, and a handful of glyphs."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    """24 classes of 12 vectors, easy in 4 of their 16 dimensions and noisy in the rest."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(24), 12)
    x = np.concatenate([rng.normal(size=(24, 4))[y] * 2 + rng.normal(size=(288, 4)) * 0.5, rng.normal(size=(288, 12)) * 3], 1)
    file = tmp_path_factory.mktemp("features") / "toy.npz"
    np.savez(file, x=x.astype(np.float32), label=y)
    return str(file)


@pytest.fixture
def settings(features, tmp_path):
    """Settings for a training of a second on the features."""
    return {
        "data": features, "out": str(tmp_path / "run"), "sampler": "SamplesPerClass(batch=24, per_class=4)", "dim": 8,
        "length": "40", "lr": 3e-3, "log_every": 10, "checkpoint_every": "10", "quiet": True, "device": "cpu",
    }  # fmt: skip
