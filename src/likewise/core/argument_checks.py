"""Checks of values against annotations: plain types, Literal, unions, containers, and the ranges of annotated-types.

A component or a config writes what an argument must be into its annotation, and no `if`: `margin: NotNegative`, or
`share: Annotated[float, Interval(ge=0, lt=1)]`. The constructors of components check it (`CheckedArguments`), the commands check
their configs. Does not import torch.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MaxLen, MinLen, MultipleOf

from likewise.core.errors import LikewiseError


@dataclass(frozen=True)
class Rule:
    """A constraint that annotated-types has not: what the value must do, in words, and whether it does."""

    words: str
    holds: Callable[[typing.Any], bool]


Positive = Annotated[float, Gt(0)]
PositiveOrInfinite = Annotated[float, Interval(gt=0, le=math.inf)]
"""A bound of infinity in the annotation is what allows an infinite number."""
NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
"""A share or a probability."""
ShareBelowOne = Annotated[float, Interval(ge=0, lt=1)]
"""A share that must leave something over, or the momentum of a moving average."""
ShareAboveZero = Annotated[float, Interval(gt=0, le=1)]
ShareBetween = Annotated[float, Interval(gt=0, lt=1)]
"""A share that divides a set into two parts, neither of them empty."""
Count = Annotated[int, Ge(1)]
CountOrZero = Annotated[int, Ge(0)]


def fits(value, hint) -> bool:
    """Return whether a value has the type of an annotation; True for other annotations. Ranges are not compared.

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
    if origin is Annotated:
        return fits(value, inside[0])
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, option) for option in inside)
    if origin is typing.Literal:
        return value in inside and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, tuple) and _fit_elements(value, inside)
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


def _fit_elements(values: tuple, hints: tuple) -> bool:
    kinds = _element_hints(values, hints)
    return len(kinds) == len(values) and all(map(fits, values, kinds))


def _element_hints(values: tuple | list, hints: tuple) -> tuple:
    """Return the annotation of every element, given the arguments of `tuple[...]`."""
    return hints[:1] * len(values) if hints[1:] == (...,) else hints


def misfit(values: Mapping[str, typing.Any], hints: Mapping[str, typing.Any]) -> str | None:
    """Return the first name of `hints` whose value has another type; names that `values` lacks are left out. None: all fit."""
    return next((name for name, hint in hints.items() if name in values and not fits(values[name], hint)), None)


def words(hint) -> str:
    """Return an annotation in words, for errors: "a number or None", "above 0", "'a', 'b' or 'c'"."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _range_words(inside[1:]) or words(inside[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(words(option) for option in inside)
    if origin is typing.Literal:
        *first, last = map(repr, inside)
        return f"{', '.join(first)} or {last}" if first else last
    if origin is tuple:
        return "several values in brackets" if inside[1:] == (...,) else f"{len(inside)} values"
    plain = {str: "text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}
    return plain.get(hint) or f"a {getattr(hint, '__name__', hint)}"


def check_arguments(owner: str, values: Mapping[str, typing.Any], hints: Mapping[str, typing.Any]) -> None:
    """Raise for the first value that breaks its annotation: "Triplet: margin must be above 0, got -1".

    Args:
        owner: who raises: the component, or the command.
        values: argument -> value; values without an annotation are not checked.
        hints: argument -> annotation, resolved, with its `Annotated` (`typing.get_type_hints(..., include_extras=True)`).
    """
    for name, value in values.items():
        if name in hints and (problem := violation(value, hints[name], name)) is not None:
            raise LikewiseError(f"{owner}: {problem}")


def violation(value, hint, name: str) -> str | None:
    """Return what a value must be and what came, such as "margin must be above 0, got -1"; None if it fits its annotation.

    Numbers must be finite, unless the annotation has the bound `le=math.inf`. An element of a tuple or list is named by its
    position: "coarse[1] must be at least 2, got 1".
    """
    found = _broken(value, hint, name)
    if found is None:
        return None
    place, rule, got = found
    shown = repr(got) if type(got).__module__ == "builtins" else type(got).__name__
    return f"{place} must {rule}, got {shown}"


def _broken(value, hint, name: str) -> tuple[str, str, typing.Any] | None:
    """Return the name of the value that breaks an annotation (or of its element), the rule in words, and the value."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        allowed = any(getattr(rule, "le", None) == value == math.inf for rule in _flat(inside[1:]))
        return None if allowed else _broken(value, inside[0], name) or _broken_range(value, inside[1:], name)
    if origin in (typing.Union, types.UnionType) and any(_is_kind(value, option) for option in inside):
        found = [_broken(value, option, name) for option in inside if _is_kind(value, option)]
        if None in found or found[0] is None:
            return None
        place, rule, got = found[0]
        return place, f"{rule} or None" if place == name and type(None) in inside else rule, got
    if origin in (tuple, list) and isinstance(value, origin):
        kinds = _element_hints(value, inside if origin is tuple else (inside[0], ...))
        if len(kinds) == len(value):
            pairs = enumerate(zip(value, kinds, strict=True))
            return next(filter(None, (_broken(one, kind, f"{name}[{i}]") for i, (one, kind) in pairs)), None)
    if not fits(value, hint):
        return name, f"be {type_words(hint)}", value
    if hint is float and isinstance(value, float) and not math.isfinite(value):
        return name, "be a finite number", value
    return None


def _is_kind(value, hint) -> bool:
    """Return whether a value has the outer type of an annotation, whatever its elements are."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _is_kind(value, inside[0])
    return isinstance(value, origin) if origin in (tuple, list) else fits(value, hint)


def type_words(hint) -> str:
    """Return the type of an annotation in words, without ranges."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_words(option) for option in inside)
    return type_words(inside[0]) if origin is Annotated else words(hint)


def bounds(hint) -> tuple[float, float]:
    """Return the lowest and the highest number that an annotation allows, infinity where it has no bound."""
    rules = _flat(rule for one in (hint, *typing.get_args(hint)) for rule in getattr(one, "__metadata__", ()))
    low: list[typing.Any] = [rule.ge for rule in rules if isinstance(rule, Ge)]
    high: list[typing.Any] = [rule.le for rule in rules if isinstance(rule, Le)]
    return max(low, default=-math.inf), min(high, default=math.inf)


def _flat(metadata: Iterable) -> list:
    """Return the constraints, with those of an `Interval` or a `Len` one by one."""
    return [one for m in metadata for one in (m if isinstance(m, Interval | Len) else [m])]


BREAKS: dict[type, Callable[[typing.Any, typing.Any], bool]] = {
    Gt: lambda value, rule: not value > rule.gt,
    Ge: lambda value, rule: not value >= rule.ge,
    Lt: lambda value, rule: not value < rule.lt,
    Le: lambda value, rule: not value <= rule.le,
    MultipleOf: lambda value, rule: value % rule.multiple_of != 0,
    MinLen: lambda value, rule: len(value) < rule.min_length,
    MaxLen: lambda value, rule: len(value) > rule.max_length,
    Rule: lambda value, rule: not rule.holds(value),
}
"""Constraint -> whether a value breaks it. Other metadata of an annotation is no constraint."""


def _broken_range(value, metadata: tuple, name: str) -> tuple[str, str, typing.Any] | None:
    rule = next((rule for rule in _flat(metadata) if type(rule) in BREAKS and BREAKS[type(rule)](value, rule)), None)
    if rule is None:
        return None
    if isinstance(rule, Rule):
        return name, rule.words, value
    return name, f"{'have' if isinstance(rule, MinLen | MaxLen) else 'be'} {_range_words(metadata)}", value


def _range_words(metadata: tuple) -> str:
    """Return the constraints in words: "between 0 and 1", "above 0 and below 2", "a multiple of 8"; "": there are none."""
    rules = {type(rule): rule for rule in _flat(metadata) if getattr(rule, "le", None) != math.inf}
    if Ge in rules and Le in rules and len(rules) == 2:
        return f"between {rules[Ge].ge:g} and {rules[Le].le:g}"
    forms = {
        Gt: lambda rule: f"above {rule.gt:g}",
        Ge: lambda rule: f"at least {rule.ge:g}",
        Lt: lambda rule: f"below {rule.lt:g}",
        Le: lambda rule: f"at most {rule.le:g}",
        MultipleOf: lambda rule: f"a multiple of {rule.multiple_of:g}",
        MinLen: lambda rule: f"at least {rule.min_length} value{'s' * (rule.min_length != 1)}",
        MaxLen: lambda rule: f"at most {rule.max_length} value{'s' * (rule.max_length != 1)}",
    }
    return " and ".join(form(rules[kind]) for kind, form in forms.items() if kind in rules)


class CheckedArguments:
    """Base class whose subclasses check the arguments of their constructors against the annotations, before the constructor runs.

    Arguments without an annotation are not checked, and neither are those of a constructor whose annotations name unknown types.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _checked(vars(cls)["__init__"])  # pyright: ignore[reportAttributeAccessIssue]


def _checked(constructor: Callable) -> Callable:
    """Return the constructor with a check of its arguments before it."""

    @functools.wraps(constructor)
    def __init__(self, *args, **kwargs):
        signature, hints = argument_hints(constructor)
        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:  # the call below raises Python's own error
            given = {}
        check_arguments(type(self).__name__, {name: as_number(value) for name, value in given.items()}, hints)
        constructor(self, *args, **kwargs)

    return __init__


@functools.cache
def argument_hints(function: Callable) -> tuple[inspect.Signature, dict[str, typing.Any]]:
    """Return the signature of a function, and argument -> annotation with its constraints; {} if a type cannot be resolved."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        hints = {}
    return inspect.signature(function), hints


def as_number(value):
    """Return a scalar of numpy or torch as a Python number, also inside a tuple; any other value unchanged."""
    if type(value) is tuple:
        return tuple(map(as_number, value))
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
