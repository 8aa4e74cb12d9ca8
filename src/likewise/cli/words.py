"""Check the words of a command before they are parsed: unknown flags, flags of other tools, and values of a wrong type."""

from __future__ import annotations

import dataclasses
import re
import typing
from itertools import zip_longest
from typing import Literal

from likewise.cli.help import is_switch, placeholder, position_name
from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.settings.checks import replacement
from likewise.core.settings.cli_types import flag_name

FOREIGN_FLAGS: dict[str, tuple[str, ...]] = {
    "backbone": ("model", "arch", "architecture", "network", "encoder", "model-name", "backbone-name"),
    "data": ("data", "data-dir", "dataset", "data-path", "data-root", "train-dir", "input", "input-dir", "images", "d"),
    "out": ("output", "output-dir", "output-file", "save-dir", "out-dir", "outdir", "log-dir", "exp-name", "name", "o"),
    "workers": ("num-workers", "n-workers", "nworkers", "num-threads", "j"),
    "lr": ("learning-rate", "base-lr", "lr0", "init-lr"),
    "batch_size": ("bs", "batch", "batchsize", "train-batch-size", "b"),
    "size": ("img-size", "image-size", "imgsz", "resolution", "input-size", "crop-size", "img"),
    "epochs": ("num-epochs", "max-epochs", "n-epochs", "epoch", "length", "e"),
    "steps": ("max-steps", "num-steps", "iterations", "iters", "max-iters"),
    "gpus": ("num-gpus", "n-gpus", "ngpus", "nproc-per-node"),
    "device": ("gpu", "gpu-id", "gpu-ids", "cuda", "use-cuda", "devices", "accelerator", "cpu"),
    "dim": ("embedding-dim", "embedding-size", "emb-dim", "embed-dim", "embed-size"),
    "optimizer": ("optim", "opt", "optimiser"),
    "weight_decay": ("wd", "decay", "l2"),
    "schedule": ("scheduler", "lr-scheduler", "sched"),
    "seed": ("random-seed", "random-state", "manual-seed"),
    "weights": ("pretrained-weights", "ckpt", "init-weights", "pretrained-path", "load"),
    "loss": ("criterion", "loss-fn", "objective"),
    "patience": ("early-stopping", "early-stop"),
    "loggers": ("wandb", "tensorboard", "mlflow", "logger", "tracker"),
    "confidence": ("robust-method", "noise-robust"),
    "restart": ("force", "overwrite", "exist-ok"),
    "metrics": ("metric", "eval-metrics"),
    "query": ("image", "img-path", "query-image"),
    "k": ("topk", "top-k", "n-neighbors", "num-neighbors", "neighbours"),
    "to": ("format", "export-format"),
    "jobs": ("parallel", "n-jobs", "num-jobs"),
    "quiet": ("silent", "no-progress", "q"),
}
"""Setting -> flags that other tools have for it, without their dashes."""

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
    "slurm": "a job array trains the cells with --only; docs/clusters.md has its script",
    "yes": "commands start at once, without confirmation; write no flag",
}
"""Flag of other tools -> what to write in place of it."""

ONLY_TRAIN = ("resume", "continue", "resume-from-checkpoint", "amp", "fp16", "bf16", "half", "mixed-precision")
"""Flags of `FLAG_SENTENCES` that make sense for train only."""


def check_words(command: str, kind: type, words: list[str]) -> None:
    """Raise for the first flag that the command does not have, and for the first value that its flag cannot take."""
    hints = typing.get_type_hints(kind, include_extras=True)
    flags = {flag_name(name): hint for name, hint in hints.items() if not position_name(hint)}
    flags |= {"--robust": bool} if command == "train" else {}
    for word, following in zip_longest(words, words[1:]):
        if word == "--" or not re.match(r"--?[^\W\d]", word):
            continue
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        hint = flags.get(flag.replace("--no-", "--", 1))
        if hint is None:
            raise LikewiseError(unknown_flag(command, flag, hints, list(flags)))
        check_value(command, flag, hint, value if equals else following, bool(equals))


def unknown_flag(command: str, flag: str, hints: dict[str, object], flags: list[str]) -> str:
    """Return the error about a flag that the command does not have, with what to write in place of it."""
    name, start = flag.lstrip("-"), f"{command}: there is no flag '{flag}'"
    if name in FLAG_SENTENCES and (command == "train" or name not in ONLY_TRAIN):
        return f"{start}; {FLAG_SENTENCES[name]}"
    meant = [setting for setting, others in FOREIGN_FLAGS.items() if name in others]
    meant += [other for setting in meant for other in FIRST_ARGUMENTS.get(setting, ())] + [name.replace("-", "_")]
    for setting in meant:
        if setting not in hints:
            continue
        if place := position_name(hints[setting]):
            places = " ".join(filter(None, map(position_name, hints.values())))
            return f"{start}; {place} is given without a flag: likewise {command} {places}"
        return f"{start}; did you mean '{flag_name(setting)}'? See `likewise {command} --help-all`"
    return f"{start}{nearest_name(flag, flags)} See `likewise {command} --help-all`"


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
    options = (
        [one for one in typing.get_args(hint) if one is not type(None)]
        if type(None) in typing.get_args(hint)
        else [hint]
    )
    (bare,) = options
    choices = typing.get_args(bare) if typing.get_origin(bare) is Literal else ()
    if (bare not in (int, float) and not choices) or (value == "None" and bare is not hint):
        return
    wanted = {int: "a whole number", float: "a number"}.get(bare) or f"one of {', '.join(map(str, choices))}"  # pyright: ignore[reportArgumentType,reportCallIssue]
    if value is None or (not is_joined and re.match(r"--?[^\W\d]", value)):
        raise LikewiseError(f"{command}: {flag} must be {wanted}, got nothing; write {flag} {placeholder(hint)}")
    if choices and value not in map(str, choices):
        hint = replacement(flag, value) or nearest_name(value, map(str, choices))
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
