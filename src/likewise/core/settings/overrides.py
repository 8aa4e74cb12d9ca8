"""Override settings of a training by name, including arguments inside specs, such as loss.miner.eps."""

from __future__ import annotations

import ast
import dataclasses
import re
import tomllib
import typing
from functools import cache
from typing import Any

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.settings import SPECS, Train
from likewise.core.settings.spec import canonical

COMMAND_SETTINGS = ("out", "restart", "evaluate", "allow_imports", "quiet")
"""Settings of Train that a file cannot set: the command decides them."""


@cache
def hints_of_train() -> dict[str, object]:
    """Return setting -> type annotation."""
    return typing.get_type_hints(Train)


def names_of_settings() -> list[str]:
    """Return the names of the settings that a file can set."""
    return [f.name for f in dataclasses.fields(Train) if f.name not in COMMAND_SETTINGS]


def plain(key: str, value: object) -> object:
    """Return a value with the type of its setting: "none" as None where None is allowed, counts as text, lists as tuples."""
    hints = hints_of_train()
    if key in COMMAND_SETTINGS:
        raise LikewiseError(f"grid: '{key}' cannot be set in a file; remove it, the command decides it")
    if "." in key:
        must_be_spec(key, "grid")
        return tuple(value) if isinstance(value, list) else value
    if key not in hints:
        raise LikewiseError(
            f"grid: there is no setting '{key}'{nearest_name(key, hints)} It takes: {', '.join(names_of_settings())}"
        )
    inside = typing.get_args(hints[key])
    words = [w for option in inside if typing.get_origin(option) is typing.Literal for w in typing.get_args(option)]
    if value == "none" and type(None) in inside and "none" not in words:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if hints[key] is str:
            return str(value)
        if float in (hints[key], *inside) and int not in inside:
            return float(value)  # 1 and 1.0 describe the same training
    return tuple(value) if isinstance(value, list) else value


def flat(table: dict, prefix: str = "") -> typing.Iterator[tuple[str, object]]:
    """Yield the entries of nested TOML tables under dotted names: `loss.margin = 0.1` is a table in a table for TOML."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def settings_of(config: Train) -> dict[str, object]:
    """Return the settings that reproduce a training: all that differ from the defaults of Train."""
    default = {f.name: f.default for f in dataclasses.fields(Train)}
    # The values of the recipe are among the settings; machines differ.
    left_out = (*COMMAND_SETTINGS, "recipe", "device", "workers")
    return {k: v for k, v in vars(config).items() if k not in left_out and v != default[k]}


def fill(key: str, value: object, let: dict[str, str]) -> object:
    """Return a spec with {name} replaced by the value that another axis point defines for it with `let`."""
    if key.split(".")[0] not in SPECS or not isinstance(value, str | tuple):
        return value
    if isinstance(value, tuple):
        return tuple(fill(key, text, let) for text in value)
    for name, text in let.items():
        value = value.replace(f"{{{name}}}", text)
    if left := re.search(r"\{(\w+)\}", value):
        raise LikewiseError(
            f"grid: {key} has {left[0]}, which no point defines{nearest_name(left[1], let)} Write let = {{{left[1]} = ...}}"
        )
    return value


def read_change(word: str) -> tuple[str, object]:
    """Return key and value of KEY=VALUE: numbers, booleans and lists in TOML syntax, anything else as text."""
    key, equals, text = (piece.strip() for piece in word.partition("="))
    if not equals or not key:
        raise LikewiseError(
            f"grid: a change must be written setting=value, got '{word}'; or give a .toml file with [settings]"
        )
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        value = text
    return key, plain(key, value if isinstance(value, bool | int | float | str | list) else text)


def must_know(name: str, known: typing.Collection[str], what: str) -> None:
    """Raise, with the nearest known name, unless the name is known."""
    if name not in known:
        raise LikewiseError(
            f"grid: there is no {what} '{name}'{nearest_name(name, known)} There are: {', '.join(known)}"
        )


def must_be_spec(name: str, owner: str) -> None:
    """Raise unless a dotted name begins with a setting that is a spec."""
    setting = name.split(".")[0]
    if setting not in SPECS:
        raise LikewiseError(
            f"{owner}: only {', '.join(SPECS)} have arguments, got '{name}'{nearest_name(setting, SPECS)}"
        )


def find_argument(config: Train, name: str, owner: str = "grid") -> ast.expr:
    """Return the value of an argument as a syntax node, defaults included; of several terms, from the first that has it."""
    return _places(config, name, owner)[1][0].value


def has_argument(config: Train, name: str) -> bool:
    """Whether any component of the setting has an argument of this name."""
    try:
        _places(config, name, "grid")
    except LikewiseError:
        return False
    return True


def with_argument(config: Train, name: str, value: object, owner: str = "grid") -> Train:
    """Return the settings with a new value for an argument; of several terms, in every term that has it."""
    trees, places = _places(config, name, owner)
    for place in places:
        place.value = _node(value)
    setting = name.split(".")[0]
    texts = tuple(ast.unparse(ast.fix_missing_locations(tree)) for tree in trees)
    return dataclasses.replace(config, **{setting: texts if isinstance(getattr(config, setting), tuple) else texts[0]})


def _places(config: Train, name: str, owner: str) -> tuple[list[ast.expr], list[ast.keyword]]:
    """Return the parsed specs of a setting with all arguments written out, and the nodes of the named argument in them."""
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
    """Return the node of an argument in a spec whose arguments are all written out."""
    for word in path:
        known: dict[Any, ast.keyword] = {k.arg: k for k in node.keywords} if isinstance(node, ast.Call) else {}
        if word not in known:
            component = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)
            raise LikewiseError(
                f"{owner}: {name}: {component} has no argument '{word}'{nearest_name(word, known)} "
                f"It takes: {', '.join(known) or 'none'}"
            )
        found, node = known[word], known[word].value
    return found


def _node(value: object) -> ast.expr:
    """Return a value as a syntax node of a spec. A text can be a component such as HardPairs(), a literal or "none"; otherwise it
    is a string literal."""
    if not isinstance(value, str):
        return ast.parse(repr(value), mode="eval").body
    try:
        node = ast.parse("None" if value == "none" else value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Constant(value)
    is_value = isinstance(node, ast.Call | ast.Constant | ast.Tuple | ast.List | ast.UnaryOp)
    return node if is_value else ast.Constant(value)
