"""Settings of a training by their names: values as Train has them, and arguments inside specs, such as loss.miner.eps."""

from __future__ import annotations

import ast
import dataclasses
import re
import tomllib
import typing
from functools import cache
from typing import Any

from likewise.config import SPECS, Train
from likewise.config.spec import canonical
from likewise.errors import LikewiseError, nearest_name

OURS = ("out", "restart", "evaluate", "allow_imports", "quiet")
"""Settings of Train that are not a file's to give: the command decides them."""


@cache
def hints_of_train() -> dict[str, object]:
    """What each setting is annotated with."""
    return typing.get_type_hints(Train)


def set_of_train() -> list[str]:
    """The settings a file may give."""
    return [f.name for f in dataclasses.fields(Train) if f.name not in OURS]


def plain(key: str, value: object) -> object:
    """A value as Train has it: "none" is None where a setting may be None, counts are text, lists tuples."""
    hints = hints_of_train()
    if key in OURS:
        raise LikewiseError(f"grid: '{key}' is not for a file to say; leave it out, the command decides it")
    if "." in key:
        must_be_spec(key, "grid")
        return tuple(value) if isinstance(value, list) else value
    if key not in hints:
        raise LikewiseError(
            f"grid: there is no setting '{key}'{nearest_name(key, hints)} It takes: {', '.join(set_of_train())}"
        )
    inside = typing.get_args(hints[key])
    words = [w for part in inside if typing.get_origin(part) is typing.Literal for w in typing.get_args(part)]
    if value == "none" and type(None) in inside and "none" not in words:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if hints[key] is str:
            return str(value)
        if float in (hints[key], *inside) and int not in inside:
            return float(value)  # 1 and 1.0 are one training
    return tuple(value) if isinstance(value, list) else value


def flat(table: dict, prefix: str = "") -> typing.Iterator[tuple[str, object]]:
    """`loss.margin = 0.1` is a table in a table for TOML, and one name for us."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def settings_of(config: Train) -> dict[str, object]:
    """The settings that make this training again: those that are not Train's defaults."""
    default = {f.name: f.default for f in dataclasses.fields(Train)}
    left_out = (*OURS, "recipe", "device", "workers")  # a recipe's values are among the settings; machines differ
    return {k: v for k, v in vars(config).items() if k not in left_out and v != default[k]}


def fill(key: str, value: object, let: dict[str, str]) -> object:
    """A spec with what other points let it have in place of {names}."""
    if key.split(".")[0] not in SPECS or not isinstance(value, str | tuple):
        return value
    if isinstance(value, tuple):
        return tuple(fill(key, text, let) for text in value)
    for name, text in let.items():
        value = value.replace(f"{{{name}}}", text)
    if left := re.search(r"\{(\w+)\}", value):
        raise LikewiseError(
            f"grid: {key} has {left[0]}, which no point says{nearest_name(left[1], let)} Write let = {{{left[1]} = ...}}"
        )
    return value


def read_change(word: str) -> tuple[str, object]:
    """KEY=VALUE as it stands on the command line: numbers, truth and lists as TOML writes them, anything else is text."""
    key, equals, text = (part.strip() for part in word.partition("="))
    if not equals or not key:
        raise LikewiseError(
            f"grid: a change is written setting=value, got '{word}'; or name a .toml file with [settings]"
        )
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        value = text
    return key, plain(key, value if isinstance(value, bool | int | float | str | list) else text)


def must_know(name: str, known: typing.Collection[str], what: str) -> None:
    """The name is one of those known, or there is an error with the nearest."""
    if name not in known:
        raise LikewiseError(
            f"grid: there is no {what} '{name}'{nearest_name(name, known)} There are: {', '.join(known)}"
        )


def must_be_spec(name: str, owner: str) -> None:
    """A dotted name reaches into a setting that is a spec, or there is an error."""
    setting = name.split(".")[0]
    if setting not in SPECS:
        raise LikewiseError(
            f"{owner}: only {', '.join(SPECS)} have arguments, got '{name}'{nearest_name(setting, SPECS)}"
        )


def find_argument(config: Train, name: str, owner: str = "grid") -> ast.expr:
    """What stands for an argument in the settings, defaults included; of several terms, in the first that has it."""
    return _places(config, name, owner)[1][0].value


def has_argument(config: Train, name: str) -> bool:
    """Whether any part has an argument of this name."""
    try:
        _places(config, name, "grid")
    except LikewiseError:
        return False
    return True


def with_argument(config: Train, name: str, value: object, owner: str = "grid") -> Train:
    """The settings with this value as the argument, in every term that has it."""
    trees, places = _places(config, name, owner)
    for place in places:
        place.value = _node(value)
    setting = name.split(".")[0]
    texts = tuple(ast.unparse(ast.fix_missing_locations(tree)) for tree in trees)
    return dataclasses.replace(config, **{setting: texts if isinstance(getattr(config, setting), tuple) else texts[0]})


def _places(config: Train, name: str, owner: str) -> tuple[list[ast.expr], list[ast.keyword]]:
    """The specs of a setting, all arguments written out, and where among them the named one stands."""
    setting, *path = name.split(".")
    must_be_spec(name, owner)
    texts = getattr(config, setting)
    if not texts:
        raise LikewiseError(f"{owner}: {setting} is not set, so it has no arguments, got '{name}'; set it first")
    texts = texts if isinstance(texts, tuple) else (texts,)
    trees = [ast.parse(canonical(text), mode="eval").body for text in texts]
    places, problem = [], None
    for tree in trees:
        try:
            places.append(_argument(tree, path, name, owner))
        except LikewiseError as error:
            problem = problem or error
    if problem and not places:
        raise problem
    return trees, places


def _argument(node: ast.expr, path: list[str], name: str, owner: str) -> ast.keyword:
    """The place of an argument in a spec whose arguments are all written out."""
    for word in path:
        known: dict[Any, ast.keyword] = {k.arg: k for k in node.keywords} if isinstance(node, ast.Call) else {}
        if word not in known:
            part = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)
            raise LikewiseError(
                f"{owner}: {name}: {part} has no argument '{word}'{nearest_name(word, known)} "
                f"It takes: {', '.join(known) or 'none'}"
            )
        found, node = known[word], known[word].value
    return found


def _node(value: object) -> ast.expr:
    """A value as it stands in a spec. A text may be a part, HardPairs(), a literal, or "none"; any other is text itself."""
    if not isinstance(value, str):
        return ast.parse(repr(value), mode="eval").body
    try:
        node = ast.parse("None" if value == "none" else value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Constant(value)
    return (
        node if isinstance(node, ast.Call | ast.Constant | ast.Tuple | ast.List | ast.UnaryOp) else ast.Constant(value)
    )
