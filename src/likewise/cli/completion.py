"""Completion of commands, flags and choices in bash, zsh and fish: scripts written from the commands and their configs.

The scripts call nothing: all words are in them. Install them again after an update of likewise.
"""

from __future__ import annotations

import os
import shlex
import typing
from pathlib import Path
from typing import Literal, NamedTuple

from likewise.cli.commands import COMMANDS, config_class
from likewise.cli.early import SPEC_KINDS
from likewise.cli.help import is_switch, position_name
from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.files import atomic_write
from likewise.core.settings.cli_types import flag_name, marks, spec_fields
from likewise.core.settings.known_names import COMPONENT_REGISTRIES, NAME_REGISTRIES, component_names
from likewise.learn import recipes
from likewise.papers.grid import table_names

SHELL_NAMES = ("bash", "zsh", "fish")
DEVICE_NAMES = ("cpu", "cuda", "mps")
FIRST_FLAGS = ("--help", "--version", "--install-completion", "--print-completion")


class Words(NamedTuple):
    """The words that complete a command: its flags, the choices of a flag, and names for its first positional argument."""

    flags: tuple[str, ...]
    choices: dict[str, tuple[str, ...]]
    names: tuple[str, ...] = ()


def words_of(command: str, kind: type) -> Words:
    """Return the words of a command from the fields of its config."""
    flags, choices = [], {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if position_name(hint):
            continue
        flag = flag_name(name)
        flags += [flag, *([f"--no-{flag[2:]}"] if is_switch(hint) and getattr(kind, name, False) is not False else [])]
        found = choices_of(name, hint, name in spec_fields(kind))
        choices |= {flag: found} if found else {}
    flags += [*(["--robust"] if command == "train" else []), "--help", "--help-all"]
    return Words(tuple(flags), choices, positional_names(command))


def choices_of(name: str, hint: object, is_spec: bool) -> tuple[str, ...]:
    """Return the values that a flag may have, as far as they are a short list; otherwise nothing."""
    for one in (hint, *typing.get_args(hint)):
        if typing.get_origin(one) is Literal:
            return tuple(map(str, typing.get_args(one)))
    if is_spec:
        return component_names(SPEC_KINDS[name][0])
    if name == "recipe":
        return tuple(recipes.names())
    return DEVICE_NAMES if "device" in marks(hint) else ()


def positional_names(command: str) -> tuple[str, ...]:
    """Return names for the first positional argument of a command; nothing where it is a path."""
    registries = (*COMPONENT_REGISTRIES, *NAME_REGISTRIES, "all")
    found = {"list": registries, "bench": table_names(), "recipe show": recipes.names()}
    return tuple(found.get(command, ()))


def all_words() -> dict[str, Words]:
    """Return the words of every command, and of `recipe`, whose second word is show or diff."""
    found = {name: words_of(name, config_class(name)) for name in COMMANDS}
    show, diff = found.pop("recipe show"), found.pop("recipe diff")
    return found | {"recipe": Words(tuple(dict.fromkeys(show.flags + diff.flags)), {}, ("show", "diff"))}


def script(shell: str) -> str:
    """Return the completion script for a shell."""
    if shell not in SHELL_NAMES:
        raise LikewiseError(
            f"completion: the shell must be one of {', '.join(SHELL_NAMES)}, got '{shell}'{nearest_name(shell, SHELL_NAMES)}"
        )
    return {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[shell](all_words())


def case_lines(words: dict[str, Words], answer: str) -> tuple[list[str], list[str], list[str]]:
    """Return the lines of `case` for choices, flags and names. `answer` is a command with {} in place of the words."""
    choices = [
        f'    "{command} {flag}") {answer.format(" ".join(values))}; return ;;'
        for command, of in words.items()
        for flag, values in of.choices.items()
    ]
    flags = [f"      {command}) {answer.format(' '.join(of.flags))} ;;" for command, of in words.items()]
    names = [f"    {command}) {answer.format(' '.join(of.names))} ;;" for command, of in words.items() if of.names]
    return choices, flags, names


def bash_script(words: dict[str, Words]) -> str:
    choices, flags, names = case_lines(words, 'COMPREPLY=($(compgen -W "{}" -- "$current"))')
    first = " ".join((*words, *FIRST_FLAGS))
    return "\n".join([
        "# Completion of likewise in bash.",
        "_likewise() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"',
        "  COMPREPLY=()",
        '  if [[ $COMP_CWORD -eq 1 ]]; then',
        f'    COMPREPLY=($(compgen -W "{first}" -- "$current")); return',
        "  fi",
        '  case "$command $previous" in', *choices, "  esac",
        '  if [[ "$current" == -* ]]; then', '    case "$command" in', *flags, "    esac", "    return", "  fi",
        '  [[ $COMP_CWORD -eq 2 ]] && case "$command" in', *names, "  esac",
        "  return 0",
        "}",
        "complete -o default -F _likewise likewise",
        "",
    ])  # fmt: skip


def zsh_script(words: dict[str, Words]) -> str:
    choices, flags, names = case_lines(words, "compadd -- {}")
    return "\n".join([
        "#compdef likewise",
        "_likewise() {",
        '  local current="$words[CURRENT]" previous="$words[CURRENT-1]" command="$words[2]"',
        "  if (( CURRENT == 2 )); then",
        f"    compadd -- {' '.join((*words, *FIRST_FLAGS))}; return",
        "  fi",
        '  case "$command $previous" in', *choices, "  esac",
        '  if [[ "$current" == -* ]]; then', '    case "$command" in', *flags, "    esac", "    return", "  fi",
        '  (( CURRENT == 3 )) && case "$command" in', *names, "  esac",
        "  _files",
        "}",
        'if [[ "$zsh_eval_context[-1]" == loadautofunc ]]; then _likewise "$@"; else compdef _likewise likewise; fi',
        "",
    ])  # fmt: skip


def fish_script(words: dict[str, Words]) -> str:
    lines = ["# Completion of likewise in fish."]
    for command, of in words.items():
        summary = COMMANDS[command].summary if command in COMMANDS else "print a recipe, or compare two"
        lines.append(f"complete -c likewise -n __fish_use_subcommand -x -a {command} -d {shlex.quote(summary)}")
        seen = f"complete -c likewise -n '__fish_seen_subcommand_from {command}'"
        for flag in of.flags:
            values = f" -x -a '{' '.join(of.choices[flag])}'" if flag in of.choices else ""
            lines.append(f"{seen} -l {flag[2:]}{values}")
        lines += [f"{seen} -a '{' '.join(of.names)}'"] if of.names else []
    return "\n".join([*lines, ""])


def install(shell: str) -> str:
    """Write the script into the completion folder of the user, and return where it is and how to activate it."""
    text, file = script(shell), place(shell)
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as part:
        part.write_text(text, "utf-8")
    path, folder = shlex.quote(str(file)), shlex.quote(str(file.parent))
    activation = {
        "bash": f"open a new shell; if that has no effect, add this line to ~/.bashrc: source {path}",
        "zsh": f"add this line to ~/.zshrc, and open a new shell: fpath+=({folder}); autoload -U compinit; compinit",
        "fish": "open a new shell",
    }
    return f"completion: {file}\nto activate it: {activation[shell]}"


def place(shell: str) -> Path:
    """Return the file in which a shell looks for the completion of likewise."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return {
        "bash": data / "bash-completion" / "completions" / "likewise",
        "zsh": data / "zsh" / "site-functions" / "_likewise",
        "fish": settings / "fish" / "completions" / "likewise.fish",
    }[shell]


def current_shell() -> str:
    """Return the user's shell by the variable SHELL; raises if it is not one of `SHELL_NAMES`."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELL_NAMES:
        raise LikewiseError(
            f"completion: the shell must be one of {', '.join(SHELL_NAMES)}, got '{name}' from the variable SHELL; name it: "
            "likewise --install-completion bash"
        )
    return name
