"""Flags of the commands, from the fields of their configs and the texts below the fields: help, parser, checks of words.

Imports neither torch nor timm.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import shutil
import textwrap
import typing
from itertools import pairwise, zip_longest
from typing import Annotated, Any, Literal

import tyro

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.settings.field_types import flag_name, marks
from likewise.core.settings.training_settings import COMMON_FLAGS, FLAG_GROUPS, ROBUST_FLAG_HELP, Train

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

EXAMPLES = {
    "clean": ("likewise clean photos/ --to photos-clean",),
    "train": (
        "likewise train photos/ --robust --epochs 10",
        'likewise train cub200 --root ~/CUB --loss "ProxyAnchor()" --batch-size 120',
    ),
    "compare": ("likewise compare runs/a runs/b", "likewise compare runs/a runs/b --on photos-clean"),
    "search": ("likewise search runs/a --serve", "likewise search runs/a --query photo.jpg --k 10"),
    "calibrate": ("likewise calibrate runs/a", "likewise calibrate runs/a --precision 0.99"),
}
"""Command -> calls that its help shows."""

ALIASES: dict[str, tuple[str, ...]] = {
    "backbone": ("model", "arch", "architecture", "network", "encoder", "model-name", "backbone-name"),
    "out": ("output", "output-dir", "output-file", "save-dir", "out-dir", "outdir", "o"),
    "workers": ("num-workers", "n-workers", "nworkers", "num-threads", "j"),
    "lr": ("learning-rate", "base-lr", "lr0", "init-lr"),
    "batch_size": ("bs", "batch", "batchsize", "train-batch-size", "b"),
    "size": ("img-size", "image-size", "imgsz", "resolution", "input-size", "crop-size", "img"),
    "epochs": ("num-epochs", "max-epochs", "n-epochs", "e"),
    "steps": ("max-steps", "num-steps", "iterations", "iters", "max-iters"),
    "gpus": ("num-gpus", "n-gpus", "ngpus", "nproc-per-node"),
    "dim": ("embedding-dim", "embedding-size", "emb-dim", "embed-dim", "embed-size"),
    "optimizer": ("optim", "opt", "optimiser"),
    "weight_decay": ("wd", "decay", "l2"),
    "schedule": ("scheduler", "lr-scheduler", "sched"),
    "seed": ("random-seed", "random-state", "manual-seed"),
    "weights": ("pretrained-weights", "init-weights", "pretrained-path"),
    "loss": ("criterion", "loss-fn", "objective"),
    "metrics": ("eval-metrics",),
    "query": ("image", "img-path", "query-image"),
    "k": ("topk", "top-k", "n-neighbors", "num-neighbors", "neighbours"),
    "to": ("format", "export-format"),
    "jobs": ("parallel", "n-jobs", "num-jobs"),
    "quiet": ("silent", "no-progress", "q"),
}
"""Setting -> flags of other tools with the same values, without their dashes; the parser takes them too. A misspelling
of our own flag, such as --epoch, is no alias but an error."""

SIMILAR_FLAGS: dict[str, tuple[str, ...]] = {
    "data": ("data", "data-dir", "dataset", "data-path", "data-root", "train-dir", "input", "input-dir", "images", "d"),
    "out": ("log-dir", "exp-name", "name"),
    "device": ("gpu", "gpu-id", "gpu-ids", "cuda", "use-cuda", "devices", "accelerator", "cpu"),
    "epochs": ("length",),
    "weights": ("ckpt", "load"),
    "patience": ("early-stopping", "early-stop"),
    "loggers": ("wandb", "tensorboard", "mlflow", "logger", "tracker"),
    "confidence": ("robust-method", "noise-robust"),
    "restart": ("force", "overwrite", "exist-ok"),
}
"""Setting -> flags of other tools that have other values or a broader meaning; errors name the setting."""

FIRST_ARGUMENTS = {"backbone": ("run",), "data": ("targets", "target", "runs")}
"""Setting that a command does not have -> positional arguments that take its place."""

FLAG_SENTENCES = {
    "resume": "the same command resumes a training that was interrupted; write no flag",
    "continue": "the same command resumes a training that was interrupted; write no flag",
    "resume-from-checkpoint": "the same command resumes a training that was interrupted; write no flag",
    "amp": "write --precision bf16 for mixed precision",
    "fp16": "write --precision bf16 for mixed precision",
    "bf16": "write --precision bf16 for mixed precision",
    "half": "write --precision bf16 for mixed precision",
    "mixed-precision": "write --precision bf16 for mixed precision",
    "skip-bad": "broken images are skipped by default, and --strict stops at them; write no flag",
    "verbose": "progress is printed by default, and --quiet prints none; write no flag",
    "yes": "commands start at once, without confirmation; write no flag",
}
"""Flag of other tools -> what to write in place of it."""

ONLY_TRAIN = ("resume", "continue", "resume-from-checkpoint", "amp", "fp16", "bf16", "half", "mixed-precision")
"""Flags of `FLAG_SENTENCES` that make sense for train only."""


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
    if command in EXAMPLES:
        lines += ["", "Examples:", *(f"  {example}" for example in EXAMPLES[command])]
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


def without_none(hint: Any) -> Any:
    """Return the type of an annotation `T | None`, or another annotation; of a number without its range."""
    options = typing.get_args(hint)
    (kind,) = [one for one in options if one is not type(None)] if type(None) in options else [hint]
    is_number = typing.get_origin(kind) is Annotated and typing.get_args(kind)[0] in (int, float)
    return typing.get_args(kind)[0] if is_number else kind


def placeholder(hint: object) -> str:
    """Return the placeholder for the value of a flag: INT, FLOAT FLOAT, {a,b}, FOLDER, NAME(...) ..., TEXT."""
    mark, kind = next(iter(marks(hint)), "text").upper(), without_none(hint)
    if typing.get_origin(kind) is Literal:
        return f"{{{','.join(map(str, typing.get_args(kind)))}}}"
    if typing.get_origin(kind) is tuple:
        return " ".join("..." if one is ... else placeholder(one) for one in typing.get_args(kind))
    return {int: "INT", float: "FLOAT"}.get(kind, "NAME(...)" if mark == "SPEC" else mark)


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


def settings_by_flag(kind: type) -> dict[str, str]:
    """Return flag -> setting for all flags of a command: its own, and those of `ALIASES` that are not its own."""
    hints = typing.get_type_hints(kind, include_extras=True)
    own = {flag_name(name): name for name, hint in hints.items() if not position_name(hint)}
    others = {f"{'-' if len(a) == 1 else '--'}{a}": name for name in own.values() for a in ALIASES.get(name, ())}
    return others | own


def documented(kind: type) -> type:
    """Return the same config for tyro: with the texts and placeholders of help, with `ALIASES`, and for Train with --robust."""
    from copy import copy  # a field belongs to its class

    texts, hints, fields = field_texts(kind), typing.get_type_hints(kind, include_extras=True), []
    flags = settings_by_flag(kind)
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        hint = hints[field.name]
        about: dict[str, Any] = {"help": texts[field.name].replace("\n", " ")}
        if field.name.endswith("_"):
            about["name"] = flag_name(field.name).removeprefix("--")
        if not position_name(hint):
            about["aliases"] = [flag for flag, name in flags.items() if name == field.name and flag != flag_name(name)]
            about |= {} if is_switch(hint) else {"metavar": placeholder(hint)}
        if field.default is not dataclasses.MISSING:
            about["help_behavior_hint"] = default_text(field.default)
        fields.append((field.name, Annotated[hint, tyro.conf.arg(**about)], copy(field)))
    if kind is Train:
        fields.append(
            ("robust", Annotated[bool, tyro.conf.arg(help=ROBUST_FLAG_HELP)], dataclasses.field(default=False))
        )
    return dataclasses.make_dataclass(kind.__name__, fields)


def check_words(command: str, kind: type, words: list[str]) -> None:
    """Raise for the first flag that the command does not have, and for the first value that its flag cannot take."""
    hints = typing.get_type_hints(kind, include_extras=True)
    flags = {flag: hints[name] for flag, name in settings_by_flag(kind).items()}
    flags |= {"--robust": bool} if kind is Train else {}
    for word, following in zip_longest(words, words[1:]):
        if word == "--" or not re.match(r"--?[^\W\d]", word):
            continue
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        hint = flags.get(flag, flags.get(flag.replace("--no-", "--", 1)))
        if hint is None:
            raise LikewiseError(unknown_flag(command, flag, hints))
        check_value(command, flag, hint, value if equals else following, bool(equals))


def unknown_flag(command: str, flag: str, hints: dict[str, object]) -> str:
    """Return the error about a flag that the command does not have, with what to write in place of it."""
    name, start = flag.lstrip("-"), f"{command}: there is no flag '{flag}'"
    if name in FLAG_SENTENCES and (command == "train" or name not in ONLY_TRAIN):
        return f"{start}; {FLAG_SENTENCES[name]}"
    meant = [setting for table in (ALIASES, SIMILAR_FLAGS) for setting, others in table.items() if name in others]
    meant += [other for setting in meant for other in FIRST_ARGUMENTS.get(setting, ())] + [name.replace("-", "_")]
    for setting in meant:
        if setting not in hints:
            continue
        if place := position_name(hints[setting]):
            places = " ".join(filter(None, map(position_name, hints.values())))
            return f"{start}; {place} is given without a flag: likewise {command} {places}"
        return f"{start}; did you mean '{flag_name(setting)}'? See `likewise {command} --help-all`"
    own = [flag_name(setting).lstrip("-") for setting, hint in hints.items() if not position_name(hint)]
    own += ["robust"] if command == "train" else []
    near = nearest_name(name, own).replace("mean '", "mean '--")
    return f"{start}{near} See `likewise {command} --help-all`"


def check_value(command: str, flag: str, hint: object, value: str | None, is_joined: bool) -> None:
    """Raise if a flag for a number, a choice or no value has another value. Other values are left to the parser.

    Args:
        value: the text after the equals sign, or the following word; None if there is none.
        is_joined: whether the value was written with an equals sign.
    """
    if is_switch(hint):
        if hint is bool and is_joined:
            raise LikewiseError(
                f"{command}: {flag} takes no value, got '{value}'; write {flag}, or leave it out"
                + ("" if flag in ("--robust",) or flag.startswith("--no-") else f" (--no-{flag[2:]} switches it off)")
            )
        return
    bare = without_none(hint)
    choices = typing.get_args(bare) if typing.get_origin(bare) is Literal else ()
    if (bare not in (int, float) and not choices) or (value == "None" and type(None) in typing.get_args(hint)):
        return
    wanted = {int: "a whole number", float: "a number"}.get(bare) or f"one of {', '.join(map(str, choices))}"
    if value is None or (not is_joined and re.match(r"--?[^\W\d]", value)):
        raise LikewiseError(f"{command}: {flag} must be {wanted}, got nothing; write {flag} {placeholder(hint)}")
    if choices and value not in map(str, choices):
        hint = nearest_name(value, map(str, choices))
        raise LikewiseError(f"{command}: {flag} must be {wanted}, got '{value}'{hint}")
    if bare in (int, float) and not is_number(value, bare):
        raise LikewiseError(f"{command}: {flag} must be {wanted}, got '{value}'")


def is_number(text: str, kind: type) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def with_switch_values(kind: type, words: list[str]) -> list[str]:
    """Return the words with `--flag True` and `--flag False` for `--flag` and `--no-flag`, for switches whose default is None."""
    flags = {flag_name(f.name) for f in dataclasses.fields(kind) if f.type == "bool | None"}  # pyright: ignore[reportArgumentType]
    spelled = []
    for word, following in zip_longest(words, words[1:]):
        if word in flags and following not in ("True", "False", "None"):
            spelled += [word, "True"]
        elif (plain := word.replace("--no-", "--", 1)) in flags and plain != word:
            spelled += [plain, "False"]
        else:
            spelled.append(word)
    return spelled
