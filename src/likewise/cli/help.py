"""Help of the commands as plain text, from the fields of their configs and the texts below the fields. Without torch."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import shutil
import textwrap
import typing
from itertools import pairwise
from typing import Annotated, Any, Literal

import tyro

from likewise.core.settings.cli_types import flag_name, marks
from likewise.core.settings.train import COMMON_FLAGS, FLAG_GROUPS, ROBUST_FLAG_HELP, Train

MAX_LINE_WIDTH = 120
"""Longest line of help, in characters, on a wider terminal."""

COLUMN_WIDTH = 20
"""Characters of the left column of help; a longer flag has a line of its own."""

MAX_UNGROUPED_ITEMS = 10
"""Number of flags up to which a command other than train shows them without groups."""

SHARED_GROUPS = {
    "Index": ("index", "save", "add", "remove"),
    "Page in the browser": ("serve", "host", "port", "token_file", "max_upload"),
    "Data and machine": (
        "data", "root", "labels", "seed", "device", "workers", "memory", "strict", "allow_imports", "quiet",
    ),
}  # fmt: skip
"""Heading -> flags, for commands other than train. All other flags of a command come first."""

TRAIN_EXAMPLES = (
    "likewise train photos/ --robust --epochs 10",
    'likewise train cub200 --root ~/CUB --loss "ProxyAnchor()" --batch-size 120',
)
"""Commands that `likewise train --help` shows."""


class Flag(typing.NamedTuple):
    """A flag or a positional argument, as help shows it."""

    field: str
    """The setting; "robust" is a flag without a setting."""
    usage: str
    """The flag and the placeholder of its value, such as "--epochs FLOAT"."""
    text: str
    """One paragraph per line, the first of which is enough to use the flag."""
    default: str
    """"(default: 20)", "(required)", or nothing if the text describes the default."""
    is_positional: bool = False


def help_text(command: str, kind: type, everything: bool = True) -> str:
    """Return the help of a command, wrapped to the width of the terminal.

    Args:
        kind: the config of the command.
        everything: False shows the common flags of train only; all other commands always show every flag.
    """
    width = min(shutil.get_terminal_size().columns, MAX_LINE_WIDTH)
    flags = {flag.field: flag for flag in flags_of(kind)}
    is_short = kind is Train and not everything
    positional = [flag for flag in flags.values() if flag.is_positional]
    places = [flag.usage if flag.default == "(required)" else f"[{flag.usage}]" for flag in positional]
    has_flags = len(flags) > len(positional)
    lines = [" ".join([f"usage: likewise {command}", *places, *(["[flags]"] if has_flags else [])])]
    lines += ["", *textwrap.wrap(" ".join((kind.__doc__ or "").split()), width)]
    if positional:
        lines += ["", *(line for flag in positional for line in flag_lines(flag, width, is_short))]
    groups = groups_of(kind, flags)
    for title in list(groups)[:1] if is_short else groups:
        lines += ["", f"{title}:"]
        lines += [line for name in groups[title] for line in flag_lines(flags[name], width, is_short)]
    if kind is Train:
        lines += ["", "Examples:", *(f"  {example}" for example in TRAIN_EXAMPLES)]
    if is_short:
        lines += ["", f"likewise {command} --help-all shows every flag."]
    return "\n".join(lines) + "\n"


def groups_of(kind: type, flags: dict[str, Flag]) -> dict[str, list[str]]:
    """Return heading -> flags of a command, without positional arguments; every flag belongs to one heading."""
    names = [name for name, flag in flags.items() if not flag.is_positional]
    if kind is Train:
        groups: dict[str, list[str]] = {"Most used flags": [*COMMON_FLAGS]}
        return groups | {
            title: [n for n in of if n in names and n not in COMMON_FLAGS] for title, of in FLAG_GROUPS.items()
        }
    if len(names) <= MAX_UNGROUPED_ITEMS:
        return {"Flags": names} if names else {}
    groups = {title: [name for name in of if name in names] for title, of in SHARED_GROUPS.items()}
    groups = {title: of for title, of in groups.items() if len(of) > 1}
    grouped = {name for of in groups.values() for name in of}
    return {"Flags": [name for name in names if name not in grouped]} | groups


def flags_of(kind: type) -> list[Flag]:
    """Return the flags of a command in the order of its config's fields, after `--robust` for train."""
    texts, hints = field_texts(kind), typing.get_type_hints(kind, include_extras=True)
    flags = [Flag("robust", "--robust", ROBUST_FLAG_HELP, "(default: off)")] if kind is Train else []
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        hint, name = hints[field.name], flag_name(field.name)
        position = position_name(hint)
        if position:
            usage = position
        elif is_switch(hint):
            usage = name if field.default is False else f"{name}, --no-{name[2:]}"
        else:
            usage = f"{name} {placeholder(hint)}"
        flags.append(Flag(field.name, usage, texts[field.name], default_text(field.default), bool(position)))
    return sorted(flags, key=lambda flag: flag.default != "(required)")


def flag_lines(flag: Flag, width: int, is_short: bool = False) -> list[str]:
    """Return the lines of a flag: its usage at the left, its text and its default at the right."""
    first, *more = flag.text.split("\n")
    paragraphs = [f"{first} {flag.default}".rstrip(), *([] if is_short else more)]
    indent = " " * (COLUMN_WIDTH + 2)
    body = [line for text in paragraphs for line in wrapped(text, width - len(indent))]
    head = f"  {flag.usage}"
    if len(head) >= len(indent):
        return [head, *(indent + line for line in body)]
    return [head.ljust(len(indent)) + body[0], *(indent + line for line in body[1:])]


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a paragraph. Flags, other words with hyphens and "(default: 20)" are not broken."""
    lines = textwrap.wrap(text.replace("(default: ", "(default:\0"), width, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def default_text(default: object) -> str:
    """Return the end of a flag's help that names its default; the text of the flag describes None and empty defaults."""
    if default is dataclasses.MISSING:
        return "(required)"
    if default is None or default == ():
        return ""
    if isinstance(default, bool):
        return f"(default: {'on' if default else 'off'})"
    return f"(default: {' '.join(map(str, default)) if isinstance(default, tuple) else default})"


def position_name(hint: object) -> str:
    """Return the name of a positional argument, or "" for a flag."""
    return next((mark.metavar for mark in getattr(hint, "__metadata__", ()) if getattr(mark, "metavar", None)), "")


def is_switch(hint: object) -> bool:
    """Whether a flag takes no value."""
    return hint is bool or bool in typing.get_args(hint)


def placeholder(hint: object) -> str:
    """Return the placeholder for the value of a flag: INT, FLOAT FLOAT, {a,b}, FOLDER, SPEC ..., TEXT."""
    mark = next(iter(marks(hint)), "text").upper()
    bare = (
        [one for one in typing.get_args(hint) if one is not type(None)]
        if type(None) in typing.get_args(hint)
        else [hint]
    )
    (kind,) = bare
    if typing.get_origin(kind) is Literal:
        return f"{{{','.join(map(str, typing.get_args(kind)))}}}"
    if typing.get_origin(kind) is tuple:
        return " ".join("..." if one is ... else placeholder(one) for one in typing.get_args(kind))
    return {int: "INT", float: "FLOAT"}.get(kind, mark)


def field_texts(kind: type) -> dict[str, str]:
    """Return the text below every field of a config, or of its base classes, in the source, one paragraph per line."""
    texts: dict[str, str] = {}
    for owner in reversed([one for one in kind.__mro__ if dataclasses.is_dataclass(one)]):
        (source,) = ast.parse(inspect.getsource(owner)).body
        assert isinstance(source, ast.ClassDef)
        texts |= {
            ast.unparse(field.target): str(ast.literal_eval(text.value))
            for field, text in pairwise(source.body)
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
        }
    return {name: "\n".join(" ".join(part.split()) for part in text.split("\n\n")) for name, text in texts.items()}


def documented(kind: type) -> type:
    """Return the same config for tyro, whose error messages then show the same texts and placeholders as help."""
    from copy import copy  # a field belongs to its class

    texts, hints, fields = field_texts(kind), typing.get_type_hints(kind, include_extras=True), []
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        hint = hints[field.name]
        about: dict[str, Any] = {"help": texts[field.name].replace("\n", " ")}
        if field.name.endswith("_"):
            about["name"] = flag_name(field.name).removeprefix("--")
        if not position_name(hint) and not is_switch(hint):
            about["metavar"] = placeholder(hint)
        if field.default is not dataclasses.MISSING:
            about["help_behavior_hint"] = default_text(field.default)
        fields.append((field.name, Annotated[hint, tyro.conf.arg(**about)], copy(field)))
    return dataclasses.make_dataclass(kind.__name__, fields)
