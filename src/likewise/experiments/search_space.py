"""What a search varies: ranges as text, the values they give set into settings and into the arguments of specs."""

from __future__ import annotations

import ast
import math
import tomllib
import typing
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from likewise.config import Train, check
from likewise.config.overrides import find_argument, hints_of_train, plain, with_argument
from likewise.config.spec import canonical
from likewise.errors import LikewiseError

BUILT_IN = "reality-check"


@dataclass(frozen=True)
class Range:
    """Where one setting may lie: among `choices`, or from `low` to `high`. `unit` follows a count: "e" for passes."""

    name: str
    text: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False
    unit: str = ""


def read_entries(words: typing.Iterable[str], loss: str) -> dict[str, str]:
    """`name=range` words as they stand on the command line; the single word reality-check brings that paper's ranges."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if word.strip() == BUILT_IN:
            found = built_in(loss) | found
        elif not equals or not name.strip():
            raise LikewiseError(
                f"tune: a range is written name=low..high or name=a|b|c, got '{word}'; "
                f"or say {BUILT_IN} for the ranges of that paper"
            )
        else:
            found[name.strip()] = text
    return found


def read_ranges(entries: dict[str, str], base: Train) -> list[Range]:
    """Ranges from their texts, each tried on the settings at both ends or with every choice."""
    if not entries:
        raise LikewiseError(
            'tune: there is nothing to search; say --ranges "lr=1e-5..1e-2 log" "loss.margin=0..1", '
            f"or --ranges {BUILT_IN}, or write [ranges] into the file"
        )
    found = [read_range(name, text, base) for name, text in entries.items()]
    for at in range(max(2, *(len(r.choices) for r in found))):
        ends: dict[str, Any] = {
            r.name: r.choices[at % len(r.choices)] if r.choices else (r.low, r.high)[at % 2] for r in found
        }
        settle(base, found, {r.name: round(ends[r.name]) if r.whole else ends[r.name] for r in found})
    return found


def read_range(name: str, text: str, base: Train) -> Range:
    """ "0..1", "1e-5..1e-2 log", "10e..40e" or "64|128|256"; whole numbers where the setting is one."""
    low, dots, high = text.partition("..")
    kind = type_of(base, name)
    if not dots:
        choices = tuple(word.strip() for word in text.split("|"))
        if not all(choices) or len(set(choices)) < len(choices):
            raise LikewiseError(f"tune: range {name} must be low..high or choices apart by |, got '{text}'")
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
    """What a setting holds: int, float, str for settings by their annotation, for arguments by their present value."""
    if "." not in name:
        plain(name, "")  # an unknown name is refused
        hint = hints_of_train()[name]
        inside = {hint, *typing.get_args(hint)}
        return next((kind for kind in (int, float, str) if kind in inside), str)
    node = find_argument(base, name, "tune")
    return type(node.value) if isinstance(node, ast.Constant) else str


def settle(base: Train, ranges: list[Range], values: dict[str, object]) -> Train:
    """The settings with these values in place; plain settings first, then arguments of their specs."""
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
    """The ranges of Musgrave et al., A Metric Learning Reality Check, for a loss of ours."""
    tables = tomllib.loads((files(__package__ or "") / f"{BUILT_IN}.toml").read_text("utf-8"))
    tree = ast.parse(canonical(loss), mode="eval").body
    part = tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else loss
    if part not in tables:
        raise LikewiseError(
            f"tune: {BUILT_IN} has no ranges for {part}; it has them for {', '.join(tables)}. Give ranges of your own"
        )
    mined = any(
        k.arg == "miner" and ast.unparse(k.value).startswith("HardPairs(") for k in getattr(tree, "keywords", ())
    )
    return {name: text for name, text in tables[part].items() if mined or name != "loss.miner.eps"}


def _literal(text: object) -> object:
    """A choice as a value: numbers and truth as such, everything else as it is written."""
    try:
        value = ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, bool | int | float) else text
