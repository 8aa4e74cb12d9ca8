"""Convert Python values to the settings of a command: components to specs, paths to text, scalars to plain numbers."""

from __future__ import annotations

import dataclasses
import inspect
import os
import typing
from typing import Any, TypeVar

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.settings.spec import name_of, spec

Config = TypeVar("Config")


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
