"""What tests of training share: small settings, states that were built but not trained, and comparisons of runs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from likewise.config import Train
from PIL import Image

from likewise.learn.training.build import build_state, make_samples
from likewise.learn.training.defaults import resolve
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Interrupted

CPU = torch.device("cpu")


def built(config, items):
    config = resolve(config, items)
    return build_state(config, make_samples(config, items, CPU), CPU)


def same(a, b, prefix=""):
    a, b = ({k: v for k, v in state.tensors().items() if k.startswith(prefix)} for state in (a, b))
    return a.keys() == b.keys() and all(torch.equal(v, b[k]) for k, v in a.items())


def weights(run, name="model.safetensors"):
    return run.load_tensors(name)


def assert_same_network(a, b):
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def told(run):
    """The log without the clock."""
    return [{k: v for k, v in line.items() if k != "images_per_s"} for line in run.read_log()]


GLYPHS = {
    "data": "glyphs(classes=8, per_class=6, size=16)", "size": 16, "dim": 8, "steps": 8, "log_every": 2, "lr": 0.01,
    "checkpoint_every": "5", "quiet": True, "evaluate": False, "device": "cpu",
}  # fmt: skip


def pictures(folder: Path, classes=4, each=6):
    rng = np.random.default_rng(0)
    for c in range(classes):
        for i in range(each):
            (folder / f"class{c}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(folder / f"class{c}" / f"{i}.png")
    return folder


SMALL = {
    "backbone": "conv_small", "size": 16, "sampler": "SamplesPerClass(batch=4, per_class=2)", "dim": 8, "steps": 12,
    "checkpoint_every": "100", "quiet": True, "device": "cpu",
}  # fmt: skip


def assert_resumes_exactly(settings: dict, folder, stop_at, at: int = 3):
    """A training that is stopped and resumed has the tensors, the log and the sample weights of one that was not stopped.

    Return both runs.
    """
    whole = train(Train(**settings, out=str(folder / "whole")))
    with pytest.raises(Interrupted, match=f"stopped at step {at} of"):
        train(Train(**settings, out=str(folder / "half")), hooks=stop_at(at))
    resumed = train(Train(**settings, out=str(folder / "half")))
    assert_same_network(whole, resumed)
    assert told(whole) == told(resumed)
    first, second = (run.load_state()["tensors"] for run in (whole, resumed))
    assert first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())
    if settings.get("confidence"):
        first, second = (dict(np.load(run.path / "sample_weights.npz")) for run in (whole, resumed))
        assert all(np.array_equal(v, second[k], equal_nan=v.dtype.kind == "f") for k, v in first.items())
    return whole, resumed
