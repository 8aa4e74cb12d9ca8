"""What kind of text a setting is: how the command line shows it, and which settings are specs or durations."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Annotated

import tyro

Positional = tyro.conf.Positional

SPEC, DURATION = "spec", "duration"
Spec = Annotated[str, SPEC]
"""The spec of a component: "Triplet(margin=0.1)"."""
Duration = Annotated[str, DURATION]
"""How long or how often: steps ("5000"), passes over the training data ("20e"), or, for checkpoints, seconds ("30s")."""


def called(name: str):
    """What help calls a positional argument."""
    return tyro.conf.arg(metavar=name)


def spec_fields(config: type) -> tuple[str, ...]:
    """The settings of a command that are specs, or several specs, in the order of its fields."""
    return _marked(config, SPEC)


def duration_fields(config: type) -> tuple[str, ...]:
    """The settings of a command that are durations, in the order of its fields."""
    return _marked(config, DURATION)


def texts_of(config, names: typing.Iterable[str]) -> list[str]:
    """The texts in some settings of a config, those of settings that hold several one by one. What is not set is left out."""
    values = (getattr(config, name) for name in names)
    return [text for value in values for text in (value if isinstance(value, tuple) else (value,)) if text]


@cache
def _marked(config: type, mark: str) -> tuple[str, ...]:
    hints = typing.get_type_hints(config, include_extras=True)
    return tuple(field.name for field in dataclasses.fields(config) if _has(hints[field.name], mark))


def _has(hint: object, mark: str) -> bool:
    """Whether an annotation, or a part of it (`Spec | None`, `tuple[Spec, ...]`), carries this mark."""
    own = typing.get_origin(hint) is Annotated and mark in getattr(hint, "__metadata__", ())
    return own or any(_has(inside, mark) for inside in typing.get_args(hint) if not isinstance(inside, str))
