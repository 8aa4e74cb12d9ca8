"""The time of a training on a CPU is estimated from its first steps, with a clock of the test."""

from dataclasses import replace

import pytest
import torch
from learn.training.small_training import built
from likewise.config import Train

from likewise.data import load
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks
from likewise.learn.training.time_estimate import describe_time, with_estimate


@pytest.fixture
def state(pictures, small):
    return built(Train(data=str(pictures), **small | {"steps": 63, "quiet": False}), load(str(pictures)))


def walk(state, seconds, hooks=None):
    """Return what is printed in ten steps that take this long each; the first takes an hour."""
    lines, now = [], [0.0]
    hooks = with_estimate(hooks or Hooks(), state, lines.append, lambda: now[0])
    for number in range(1, 11):
        state.step = number
        now[0] += seconds if number > 1 else 3600
        hooks.after_step(state)
    return lines


def test_a_long_training_is_announced_once_after_the_measured_steps(state):
    (line,) = walk(state, 20)  # step 3 of 63: 60 steps of 20 seconds are left
    assert line.startswith("about 20 minutes on this CPU; faster: ") and "likewise train features.npz" in line
    assert walk(state, 9.9) == []


def test_the_hooks_of_the_caller_are_still_called(state):
    called = []
    walk(state, 20, Hooks(after_step=lambda state: called.append(state.step)))
    assert called == list(range(1, 11))


def test_a_quiet_training_and_a_gpu_have_no_estimate(state):
    hooks, config = Hooks(), state.config
    state.config = replace(config, quiet=True)
    assert with_estimate(hooks, state, print) is hooks
    state.config, state.device = config, torch.device("meta")
    assert with_estimate(hooks, state, print) is hooks


def test_what_is_suggested():
    config = Train("photos", backbone="resnet18")
    embed = "likewise embed resnet18 photos --layer feature --out features.npz; likewise train features.npz"
    assert describe_time(config, 599, 224) == ""
    assert describe_time(config, 1380, 224) == (
        f"about 23 minutes on this CPU; faster: --size 128 (about 8 minutes), or train a head on features: {embed}"
    )
    assert describe_time(config, 1380, 96) == f"about 23 minutes on this CPU; faster: train a head on features: {embed}"
    named = Train("cub200", root="/data/CUB", backbone="resnet18")
    assert "likewise embed resnet18 cub200 --root /data/CUB --layer" in describe_time(named, 1380, 224)
    assert describe_time(config, 10 * 3600, 256).startswith(
        "about 10 hours on this CPU; faster: --size 128 (about 2 hours)"
    )
    assert describe_time(config, 1380, None) == "about 23 minutes on this CPU; faster: fewer --epochs"


def test_the_estimate_changes_no_training(settings, tmp_path):
    """The progress bar is shown in one of two trainings, so the estimate is made in that one only."""
    one, two = (
        train(Train(**settings | {"out": str(tmp_path / str(quiet)), "quiet": quiet}), say=lambda line: None)
        for quiet in (True, False)
    )
    a, b = one.load_tensors("model.safetensors"), two.load_tensors("model.safetensors")
    assert all((a[name] == b[name]).all() for name in a) and one.about["identity"] == two.about["identity"]
