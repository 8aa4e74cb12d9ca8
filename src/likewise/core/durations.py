"""Durations as text: steps ("500"), epochs ("20e"), or seconds ("30s")."""

from __future__ import annotations

import re
from typing import Any

from likewise.core.errors import LikewiseError


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration such as "30s"; None if the text is not in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)s", text.strip())
    return float(match[1]) if match else None


def training_steps(epochs: float, steps: int | None, per_epoch: int) -> int:
    """Return the optimiser steps of a training: `steps` if it is given, otherwise `epochs` epochs of `per_epoch` steps."""
    return round(epochs * per_epoch) if steps is None else steps


def steps_of(text: str, per_pass: int, name: str, least: int = 0, owner: str = "train") -> int:
    """Return the steps of a duration: "500" is 500 steps, "20e" is 20 epochs.

    Args:
        per_pass: steps in an epoch.
        name: setting that the text comes from, for errors.
        least: smallest allowed number of steps.
        owner: command or component that the setting belongs to, for errors.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(e?)", text.strip())
    if not match or (not match[2] and "." in match[1]):
        raise LikewiseError(f"{owner}: {name} must be a number of steps ('5000') or epochs ('20e'), got '{text}'")
    steps = round(float(match[1]) * per_pass) if match[2] else int(match[1])
    if steps < least:
        bound = f"{least} step" if least == 1 else f"{least} steps"
        raise LikewiseError(f"{owner}: {name} must be at least {bound}, got '{text}', which is {steps}")
    return steps


def argument_in_steps(component: Any, name: str) -> int:
    """Return the argument of a component that is a duration in steps, by the component's `per_pass`, which epochs need."""
    given, owner = str(getattr(component, name)), type(component).__name__
    if component.per_pass is None and given.endswith("e"):
        raise LikewiseError(
            f"{owner}: with {name} in epochs, per_pass must be the number of steps in an epoch, got {name}='{given}' and "
            f"per_pass=None; give per_pass, or {name} as a number of steps"
        )
    return steps_of(given, component.per_pass or 1, name, owner=owner)


def period_of(text: str, per_pass: int, name: str, least: int = 0) -> int | str:
    """Return the steps of a duration, or the text itself if it is in seconds. Arguments as in `steps_of`."""
    if seconds_of(text) is not None:
        return text
    try:
        return steps_of(text, per_pass, name, least)
    except LikewiseError as error:
        raise LikewiseError(f"{error}; seconds ('30s') are allowed too") from None
