"""Estimate the time of a training on a CPU from its first steps, and suggest something faster if it is long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from likewise.core.settings import Train
from likewise.data import NAMES

if TYPE_CHECKING:
    from likewise.learn.training.loop import Hooks
    from likewise.learn.training.state import TrainState

LONG_SECONDS = 600.0
"""Time of a training, in seconds, from which something faster is suggested."""
MEASURED_STEPS = 2
"""Steps whose time is measured. The step before them is not: it starts the processes that read images."""
SMALL_SIZE = 128
"""Side of the images that is suggested, in pixels."""


def with_estimate(
    hooks: Hooks, state: TrainState, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Hooks:
    """Return the hooks, extended by the estimate, if the training is on a CPU and shows its progress. It changes no training.

    Args:
        clock: returns the time in seconds.
    """
    config, times = state.config, []
    if state.device.type != "cpu" or config.quiet:
        return hooks

    def after_step(now: TrainState) -> None:
        hooks.after_step(now)
        if len(times) > MEASURED_STEPS:
            return
        times.append(clock())
        if len(times) > MEASURED_STEPS:
            seconds = (times[-1] - times[0]) / MEASURED_STEPS * (now.plan.steps - now.step)
            if sentence := describe_time(config, seconds, config.size or now.components.embedder.input_size):
                say(sentence)

    return replace(hooks, after_step=after_step)


def describe_time(config: Train, seconds: float, size: int | None) -> str:
    """Return a sentence about the time of a training, with faster settings; "" if it is short.

    Args:
        seconds: time until the last step.
        size: side of the images in pixels; None for features.
    """
    if seconds < LONG_SECONDS:
        return ""
    about = f"about {in_words(seconds)} on this CPU"
    if size is None:
        return f"{about}; faster: fewer --epochs"
    faster = []
    if size > SMALL_SIZE:
        faster = [f"--size {SMALL_SIZE} (about {in_words(seconds * (SMALL_SIZE / size) ** 2)})"]
    root = f" --root {config.root}" if config.root and config.data in NAMES else ""
    embed = f"likewise embed {config.backbone} {config.data}{root} --layer feature --out features.npz"
    faster += [f"or train a head on features: {embed}; likewise train features.npz"]
    return f"{about}; faster: {', '.join(faster)}".replace("faster: or ", "faster: ")


def in_words(seconds: float) -> str:
    """Return a time in whole minutes, or in whole hours from two hours on."""
    return f"{round(seconds / 3600)} hours" if seconds >= 7200 else f"{max(2, round(seconds / 60))} minutes"
