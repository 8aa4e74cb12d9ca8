"""Ranges of a search: parse them from text, and apply values to settings and to arguments of specs."""

from __future__ import annotations

import ast
import math
import tomllib
import typing
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from likewise.core.errors import LikewiseError
from likewise.core.settings import Train, check
from likewise.core.settings.overrides import find_argument, has_argument, hints_of_train, plain, with_argument
from likewise.core.settings.spec import canonical

PAPER_RANGES = "reality-check"
INNER_LOSSES = ("loss", "coarse_loss")
"""Arguments of a loss that are losses themselves."""

RANGES_OF_CLUSTERING = ("loss.coarse", "loss.every")
"""Built-in ranges that do not apply to groups from a tree (argument `depth`)."""


@dataclass(frozen=True)
class Range:
    """The range of one setting: `choices`, or `low` to `high`. `unit` is appended to the value: "e" for epochs."""

    name: str
    text: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False
    unit: str = ""


def read_entries(words: typing.Iterable[str], loss: str, of_file: dict[str, str] | None = None) -> dict[str, str]:
    """Return name -> range from `name=range` arguments and from a file, whose ranges the arguments override.

    The argument `reality-check` adds the ranges of that paper for the names that neither gives.
    """
    paper: dict[str, str] = {}
    given: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if word.strip() == PAPER_RANGES:
            paper = built_in(loss)
        elif not equals or not name.strip():
            raise LikewiseError(
                f"tune: a range must be name=low..high or name=a|b|c, got '{word}'; "
                f"or use {PAPER_RANGES} for the ranges of that paper"
            )
        else:
            given[name.strip()] = text
    return paper | (of_file or {}) | given


def read_ranges(entries: dict[str, str], base: Train) -> list[Range]:
    """Return the ranges of these texts, after checking both ends or all choices of each on the settings."""
    if not entries:
        raise LikewiseError(
            'tune: there must be a range to search, got none; give --ranges "lr=1e-5..1e-2 log" "loss.margin=0..1", '
            f"or --ranges {PAPER_RANGES}, or write [ranges] into the file"
        )
    found = [read_range(name, text, base) for name, text in entries.items()]
    for at in range(max(2, *(len(r.choices) for r in found))):
        ends: dict[str, Any] = {
            r.name: r.choices[at % len(r.choices)] if r.choices else (r.low, r.high)[at % 2] for r in found
        }
        apply_values(base, found, {r.name: round(ends[r.name]) if r.whole else ends[r.name] for r in found})
    return found


def read_range(name: str, text: str, base: Train) -> Range:
    """Parse "0..1", "1e-5..1e-2 log", "10e..40e" or "64|128|256"; whole numbers if the setting is one."""
    low, dots, high = text.partition("..")
    kind = type_of(base, name)
    if not dots:
        choices = tuple(word.strip() for word in text.split("|"))
        if not all(choices) or len(set(choices)) < len(choices):
            raise LikewiseError(f"tune: range {name} must be low..high or choices separated by |, got '{text}'")
        return Range(name, text.strip(), choices)
    high, log = high.strip().removesuffix("log").strip(), high.strip().endswith("log")
    unit = "e" if kind is str and low.strip().endswith("e") and high.endswith("e") else ""
    try:
        if "..." in text:  # 0...5 may mean 0 to 5, or 0 to .5
            raise ValueError
        ends = [float(end.strip().removesuffix(unit)) for end in (low, high)]
    except ValueError:
        raise LikewiseError(f"tune: range {name} must lie between two numbers, got '{text}'; write 0..1") from None
    whole = kind in (int, str) or (
        kind is type(None) and all(e.is_integer() for e in ends) and "." not in low.strip() + high
    )
    if not (math.isfinite(ends[0]) and ends[0] < ends[1] < math.inf) or (log and ends[0] <= 0):
        must = "0 < low < high" if log else "low < high"
        raise LikewiseError(f"tune: range {name} must have {must}, got '{text}'")
    if whole and not all(end.is_integer() and abs(end) <= 2**53 for end in ends):
        raise LikewiseError(f"tune: {name} is a whole number up to 2**53, so its range must be too, got '{text}'")
    return Range(name, text.strip(), low=ends[0], high=ends[1], log=log, whole=whole, unit=unit)


def type_of(base: Train, name: str) -> type:
    """Return the type of a setting, by its annotation; of an argument of a spec, by its current value."""
    if "." not in name:
        plain(name, "")  # raises for an unknown name
        hint = hints_of_train()[name]
        inside = {hint, *typing.get_args(hint)}
        return next((kind for kind in (int, float, str) if kind in inside), str)
    node = find_argument(base, name, "tune")
    return type(node.value) if isinstance(node, ast.Constant) else str


def apply_values(base: Train, ranges: list[Range], values: dict[str, object]) -> Train:
    """Return the settings with these values; plain settings are set first, then arguments of specs."""
    config = base
    for r in sorted(ranges, key=lambda r: "." in r.name):
        value = f"{values[r.name]}{r.unit}" if r.unit else values[r.name]
        if "." in r.name:
            config = with_argument(config, r.name, value, "tune")
        else:
            changed = {r.name: plain(r.name, _literal(value) if r.choices else value)}
            config = replace(config, **({"steps": None} if r.name == "epochs" else {}), **changed)
    check(config)
    return config


def built_in(loss: str) -> dict[str, str]:
    """Return the ranges of Musgrave et al., A Metric Learning Reality Check, for the arguments that a loss has.

    Hierarchical has its own ranges and, under the names loss.loss and loss.coarse_loss, those of the loss of each level.
    """
    tables = tomllib.loads((files("likewise.papers.published") / f"{PAPER_RANGES}.toml").read_text("utf-8"))
    found = _ranges_inside(ast.parse(canonical(loss), mode="eval").body, "loss", tables)
    base = Train(data="", loss=loss)
    return {name: text for name, text in found.items() if "." not in name or has_argument(base, name)}


def _ranges_inside(node: ast.expr, name: str, tables: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the built-in ranges of a loss and of the losses inside it, also of arguments that it does not have.

    Args:
        node: the spec of the loss, with all arguments written out.
        name: dotted name of the loss in the settings.
        tables: built-in ranges by component.
    """
    component = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    if component not in tables:
        raise LikewiseError(
            f"tune: {PAPER_RANGES} has no ranges for {component}; it has ranges for {', '.join(tables)}. Give your own ranges"
        )
    arguments = {k.arg: k.value for k in getattr(node, "keywords", ())}
    fixed_groups = "depth" in arguments and ast.unparse(arguments["depth"]) != "None"
    found = {}
    for key, text in tables[component].items():
        if not (fixed_groups and key in RANGES_OF_CLUSTERING):
            found[f"{name}{key.removeprefix('loss')}" if key.startswith("loss.") else key] = text
    for argument in INNER_LOSSES:
        if isinstance(inner := arguments.get(argument), ast.Call):
            found |= _ranges_inside(inner, f"{name}.{argument}", tables)
    return found


def _literal(text: object) -> object:
    """Return a choice as a number or boolean if it is one, else as text."""
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, bool | int | float) else text
