"""Check values against type annotations, for settings, specs and files, which come from text."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping


def fits(value, hint) -> bool:
    """Return whether a value matches an annotation of plain types, Literal, unions, containers or classes; True for any other.

    For values of JSON files: `[float, float]` is a list of two numbers, `{"a": int}` an object whose entry `a` matches if it has
    one, `{str: int}` an object with values of one type, and a tuple of annotations one of them.
    """
    if isinstance(hint, tuple):
        return any(fits(value, option) for option in hint)
    if isinstance(hint, list):
        return isinstance(value, list) and len(hint) == len(value) and all(map(fits, value, hint))
    if isinstance(hint, Mapping):
        hints = dict.fromkeys(value, hint[str]) if str in hint and isinstance(value, dict) else hint
        return isinstance(value, dict) and misfit(value, hints) is None
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return fits(value, inside[0])
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, option) for option in inside)
    if origin is typing.Literal:
        return value in inside and not isinstance(value, bool)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = inside[:1] * len(value) if inside[1:] == (...,) else inside
        return len(kinds) == len(value) and all(fits(v, k) for v, k in zip(value, kinds, strict=True))
    if origin is list:
        return isinstance(value, list) and all(fits(one, inside[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inside[0]) and fits(v, inside[1]) for k, v in value.items())
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type) and (hint in (str, bool) or hint.__module__.startswith("likewise")):
        return isinstance(value, hint)
    return True


def misfit(values: Mapping[str, typing.Any], hints: Mapping[str, typing.Any]) -> str | None:
    """Return the first name of `hints` whose value has another type; names that `values` lacks are left out. None: all fit."""
    return next((name for name, hint in hints.items() if name in values and not fits(values[name], hint)), None)


def words(hint) -> str:
    """Return an annotation in words, for errors: "text or None"."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return words(inside[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(words(option) for option in inside)
    if origin is typing.Literal:
        return " or ".join(repr(v) for v in inside)
    if origin is tuple:
        return "several values in brackets" if inside[1:] == (...,) else f"{len(inside)} values"
    plain = {str: "text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}
    return plain.get(hint) or f"a {getattr(hint, '__name__', hint)}"
