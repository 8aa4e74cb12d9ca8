"""Values of settings: checks of types and ranges, and conversion from Python objects and JSON."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import typing
from collections.abc import Mapping
from typing import Any

from likewise.core import argument_checks
from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.settings.spec import name_of, spec

Config = typing.TypeVar("Config")


def to_dict(config) -> dict:
    """Return a config as a dict for JSON: tuples become lists."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(config).items()}


def from_dict(kind: type[Config], values: Mapping[str, typing.Any]) -> Config:
    """Return the config that `to_dict` wrote."""
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


MAX_NAME_LENGTH = 255
"""Largest length of the name of a file or folder, in characters: that of the usual file systems is 255 bytes."""

PATH_SETTINGS = (
    "data", "target", "targets", "run", "runs", "run_a", "run_b", "on", "audit", "table", "out", "root", "to", "labels",
    "weights", "votes", "exclude", "query", "add", "save",
)  # fmt: skip
"""Settings that are paths."""


def check_text(owner: str, setting: str, text: str) -> None:
    """Raise for a text that no path can be: most functions of the operating system would raise errors of other types."""
    if "\0" in text:
        raise LikewiseError(f"{owner}: {setting} must not contain a NUL character, got {text!r}")
    longest = max(map(len, text.split("/")))
    if setting in PATH_SETTINGS and not text.rstrip().endswith(")") and (longest > MAX_NAME_LENGTH or len(text) > 4000):
        raise LikewiseError(
            f"{owner}: {setting} must be a path, whose names have at most {MAX_NAME_LENGTH} characters, got one of {len(text)} "
            f"characters: '{text[:40]}…'; use a shorter one"
        )
    if setting in PATH_SETTINGS and text.startswith("~") and os.path.expanduser(text) == text:
        user = text[1:].partition("/")[0]
        raise LikewiseError(
            f"{owner}: {setting} must be a path, got '{text}', but this machine has no user '{user}'; write the whole path"
        )


def check(config) -> None:
    """Raise for the first setting whose type or range is wrong. Every command calls it once, before any work."""
    name = type(config).__name__.lower()
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not argument_checks.fits(value, hints[field.name]):
            raise LikewiseError(
                f"{name}: {field.name} must be {argument_checks.type_words(hints[field.name])}, got {value!r}"
            )
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str):
                check_text(name, field.name, text)
        if isinstance(value, int) and abs(value) > 2**53:  # larger whole numbers have no exact float
            raise LikewiseError(f"{name}: {field.name} must be between -2**53 and 2**53, got a larger whole number")
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = argument_checks.bounds(hints[field.name])
            if not low <= value <= high or not math.isfinite(value):
                bounds = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
                bounds = "a finite number" if low == -math.inf else bounds
                raise LikewiseError(f"{name}: {field.name} must be {bounds}, got {value}")


def make_config(kind: type[Config], **settings: object) -> Config:
    """Return a command's config from Python values; see `plain_settings`."""
    return kind(**plain_settings(kind, settings))


def plain_settings(kind: type, settings: dict[str, object]) -> dict[str, Any]:
    """Return settings with the types that the command line produces. A name that the config does not have is an error.

    A component (`losses.Triplet(margin=0.1)`, or the class itself) becomes its spec, a path or a run its text, and a scalar
    of numpy or torch a plain number. A list becomes a tuple, and a single value becomes a tuple of one value where the setting
    is a tuple. A whole number becomes text where the setting is text, such as `warmup=40`.
    """
    hints, owner = typing.get_type_hints(kind), kind.__name__.lower()
    known = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    for name in settings:
        if name not in known:
            raise LikewiseError(
                f"{owner} has no setting '{name}'{nearest_name(name, known)} It takes: {', '.join(known)}"
            )
    return {name: fitted(plain(value), hints[name]) for name, value in settings.items()}


def plain(value: Any) -> Any:
    """Return a value as text, a number, None, or a tuple of these."""
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple) or hasattr(value, "tolist"):
        return tuple(plain(item) for item in (value if isinstance(value, list | tuple) else value.tolist()))
    if inspect.isroutine(value):
        raise LikewiseError(
            f"a setting cannot be the function {value.__qualname__}; name it as text, 'my_module.{value.__name__}', with "
            "allow_imports=True"
        )
    return f"{name_of(value)}()" if isinstance(value, type) else spec(value)


def fitted(value: Any, hint: Any) -> Any:
    """Return a plain value with the type of its setting: whole numbers as text, a single value as a tuple of one value."""
    kinds = typing.get_args(hint) or (hint,)
    options = kinds if type(None) in kinds else (hint,)
    if isinstance(value, int) and not isinstance(value, bool) and str in options and int not in options:
        return str(value)
    is_tuple = any(typing.get_origin(option) is tuple for option in options)
    return (value,) if is_tuple and value is not None and not isinstance(value, tuple) else value
