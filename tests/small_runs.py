"""Fixtures for every test: small data that trains in seconds (clustered features, coloured pictures) and finished runs."""

import shutil

import numpy as np
import pytest
from likewise.config import Train
from PIL import Image

from likewise.learn.training.fit import train
from likewise.models.pretrained.foundation import FOUNDATION_BACKBONES, HALF_SCALE, Foundation, Preprocess
from likewise.runs.folder import Run


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    """24 classes of 12 vectors, easy in 4 of their 16 dimensions and noisy in the rest."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(24), 12)
    x = np.concatenate(
        [rng.normal(size=(24, 4))[y] * 2 + rng.normal(size=(288, 4)) * 0.5, rng.normal(size=(288, 12)) * 3], 1
    )
    file = tmp_path_factory.mktemp("features") / "toy.npz"
    np.savez(file, x=x.astype(np.float32), label=y)
    return str(file)


@pytest.fixture
def settings(features, tmp_path):
    """Settings for a training of a second on the features."""
    return {
        "data": features, "out": str(tmp_path / "run"), "sampler": "SamplesPerClass(batch=24, per_class=4)", "dim": 8,
        "steps": 40, "lr": 3e-3, "log_every": 10, "checkpoint_every": "10", "quiet": True, "device": "cpu",
    }  # fmt: skip


@pytest.fixture(scope="session")
def finished(features, tmp_path_factory):
    """A finished run on the features."""
    return train(Train(
        data=features, out=str(tmp_path_factory.mktemp("runs") / "finished"), dim=8, steps=60, lr=3e-3, quiet=True,
        sampler="SamplesPerClass(batch=24, per_class=4)", protocol="UnseenClasses(val=0.3)", validate_every="20",
        device="cpu",
    ))  # fmt: skip


@pytest.fixture
def run(finished, tmp_path):
    """The finished run in a folder of the test's own, to be changed at will."""
    return Run(shutil.copytree(finished.path, tmp_path / "my run ü"))


COLOURS = [(200, 40, 40), (40, 200, 40), (40, 40, 200), (200, 200, 40), (200, 40, 200), (40, 200, 200)]


def draw(colour, seed, size=(24, 20)):
    """A noisy picture of one colour."""
    noise = np.random.default_rng(seed).integers(-40, 40, (size[1], size[0], 3))
    return Image.fromarray((np.asarray(colour) + noise).clip(0, 255).astype(np.uint8))


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Six classes of six pictures; the last three test. Names with spaces and beyond ASCII."""
    folder = tmp_path_factory.mktemp("data") / "my pictures ü"
    for c, colour in enumerate(COLOURS):
        (folder / f"{c} färg").mkdir(parents=True)
        for i in range(6):
            draw(colour, 10 * c + i).save(folder / f"{c} färg" / f"bild {i}.png")
    return folder


@pytest.fixture(scope="session")
def small():
    """Settings for a training of a second on pictures."""
    return {
        "backbone": "conv_small", "size": 16, "sampler": "SamplesPerClass(batch=6, per_class=2)", "dim": 8,
        "steps": 20, "augment": "none", "workers": 0, "quiet": True, "device": "cpu",
    }  # fmt: skip


@pytest.fixture(scope="session")
def finished_pictures(pictures, small, tmp_path_factory):
    return train(Train(data=str(pictures), out=str(tmp_path_factory.mktemp("runs") / "pictures"), **small))


@pytest.fixture
def picture_run(finished_pictures, tmp_path):
    return Run(shutil.copytree(finished_pictures.path, tmp_path / "picture run"))


@pytest.fixture
def toy_vit(monkeypatch):
    """Name of a foundation backbone that is small: a transformer of timm with random weights, 16 pixels a patch."""
    toy = Foundation(
        "test_vit.r160_in1k", 64, "token", 0, 32, 160, 16, HALF_SCALE, Preprocess("bicubic", 1.0), "none"
    )  # fmt: skip
    monkeypatch.setitem(FOUNDATION_BACKBONES, "toy-vit", toy)
    return "toy-vit"
