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


def assert_resumes_exactly(settings: dict, folder, stop_at) -> None:
    """A training that is stopped after three steps and resumed ends with the network of one that was not stopped."""
    whole = train(Train(**settings, out=str(folder / "whole")))
    with pytest.raises(Interrupted):
        train(Train(**settings, out=str(folder / "half")), hooks=stop_at(3))
    assert_same_network(whole, train(Train(**settings, out=str(folder / "half"))))
