"""Durations: steps ("500"), passes over the training data ("20e"), or seconds ("30s")."""

from __future__ import annotations

import re

from likewise.errors import LikewiseError


def seconds_of(text: str) -> float | None:
    """ "30s" = 30 seconds; None where it is not a time."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)s", text.strip())
    return float(found[1]) if found else None


def training_steps(epochs: float, steps: int | None, per_epoch: int) -> int:
    """Return the optimiser steps of a training: `steps` where it is given, else `epochs` of `per_epoch` batches each."""
    return round(epochs * per_epoch) if steps is None else steps


def steps_of(text: str, per_pass: int, name: str, least: int = 0, owner: str = "train") -> int:
    """ "500" = 500 steps, "20e" = 20 passes over the data of so many steps each."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(e?)", text.strip())
    if not found or (not found[2] and "." in found[1]):
        raise LikewiseError(f"{owner}: {name} is a number of steps ('5000') or passes ('20e'), got '{text}'")
    steps = round(float(found[1]) * per_pass) if found[2] else int(found[1])
    if steps < least:
        raise LikewiseError(f"{owner}: {name} must be a step or more, got '{text}', which is {steps}")
    return steps


def period_of(text: str, per_pass: int, name: str, least: int = 0) -> int | str:
    """A number of steps, or the text itself where it is a time."""
    if seconds_of(text) is not None:
        return text
    try:
        return steps_of(text, per_pass, name, least)
    except LikewiseError as error:
        raise LikewiseError(f"{error}; seconds ('30s') will do too") from None
