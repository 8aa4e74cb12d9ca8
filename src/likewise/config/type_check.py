"""Check values against type annotations, for settings and specs, which come from text."""

from __future__ import annotations

import types
import typing


def fits(value, hint) -> bool:
    """Return whether a value matches an annotation of plain types, Literal, unions, tuples or classes; True for any other."""
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
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type) and (hint in (str, bool) or hint.__module__.startswith("likewise")):
        return isinstance(value, hint)
    return True


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
