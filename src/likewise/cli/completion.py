"""Completion in bash, zsh and fish: short scripts that call `likewise --complete WORDS...` for the words that may come next."""

from __future__ import annotations

import os
import shlex
import typing
from pathlib import Path
from typing import Literal

from likewise.cli.commands import COMMANDS, config_class
from likewise.core.errors import LikewiseError, nearest_name

SCRIPTS = {
    "bash": """# Completion of likewise in bash.
_likewise() {
  local IFS=$'\\n' current="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=($(compgen -W "$(likewise --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$current"))
}
complete -o default -F _likewise likewise
""",
    "zsh": """#compdef likewise
_likewise() {
  local -a offered=("${(@f)$(likewise --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -a offered || _files
}
if [[ "$zsh_eval_context[-1]" == loadautofunc ]]; then _likewise "$@"; else compdef _likewise likewise; fi
""",
    "fish": """# Completion of likewise in fish.
complete -c likewise -a "(likewise --complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)"
""",
}
"""Shell -> its script. Where `likewise` offers nothing, the shell offers the names of files."""

FIRST_FLAGS = ("--help", "--version", "--install-completion", "--print-completion")


def offered_words(words: list[str]) -> list[str]:
    """Return the words that may stand in place of the last of these words; none where the name of a file is expected."""
    *before, current = words or [""]
    if not before:
        return [*dict.fromkeys(name.split()[0] for name in COMMANDS), *FIRST_FLAGS]
    name = before[0]
    if name not in COMMANDS:
        return []
    if found := choices_of(config_class(name), before[-1]):
        return found
    if current.startswith("-"):
        return flags_of_command(name)
    return positional_names(name) if len(before) == 1 else []


def flags_of_command(name: str) -> list[str]:
    """Return the flags of a command, with `--no-...` for switches that are not off by default."""
    from likewise.cli.flags import flags_of

    shown = [flag.usage for flag in flags_of(config_class(name)) if not flag.is_positional]
    return [part.split()[0] for usage in shown for part in usage.split(", ")] + ["--help", "--help-all"]


def choices_of(kind: type, flag: str) -> list[str]:
    """Return the values that a flag may have, as far as they are a short list; otherwise nothing."""
    from likewise.cli.early import SPEC_KINDS, component_names
    from likewise.cli.flags import marks, settings_by_flag
    from likewise.learn import recipes

    setting = settings_by_flag(kind).get(flag, "")
    hint = typing.get_type_hints(kind, include_extras=True).get(setting)
    for one in (hint, *typing.get_args(hint)):
        if typing.get_origin(one) is Literal:
            return [str(value) for value in typing.get_args(one)]
    if "spec" in marks(hint):
        return list(component_names(SPEC_KINDS[setting][0]))
    return recipes.names() if setting == "recipe" else ["cpu", "cuda", "mps"] if "device" in marks(hint) else []


def positional_names(name: str) -> list[str]:
    """Return names for the first positional argument of a command; nothing where it is a path."""
    from likewise.cli.early import COMPONENT_REGISTRIES, NAME_REGISTRIES
    from likewise.learn import recipes
    from likewise.papers.grid import table_names

    registries = [*COMPONENT_REGISTRIES, *NAME_REGISTRIES, "all"]
    return list({"list": registries, "bench": table_names(), "recipe": recipes.names()}.get(name, ()))


def script(shell: str = "") -> str:
    """Return the completion script of a shell, by default of the user's shell by the variable SHELL."""
    return SCRIPTS[known_shell(shell)]


def install(shell: str = "") -> str:
    """Write the script where the shell looks for it, and return where it is and how to activate it."""
    shell = known_shell(shell)
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    file = {
        "bash": data / "bash-completion" / "completions" / "likewise",
        "zsh": data / "zsh" / "site-functions" / "_likewise",
        "fish": settings / "fish" / "completions" / "likewise.fish",
    }[shell]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SCRIPTS[shell], "utf-8")
    activation = {
        "bash": f"open a new shell; if that has no effect, add this line to ~/.bashrc: source {shlex.quote(str(file))}",
        "zsh": f"add this line to ~/.zshrc, and open a new shell: fpath+=({shlex.quote(str(file.parent))}); "
        "autoload -U compinit; compinit",
        "fish": "open a new shell",
    }
    return f"completion: {file}\nto activate it: {activation[shell]}"


def known_shell(name: str) -> str:
    """Return the name of a shell, by default that of the variable SHELL; raise if there is no script for it."""
    shell = name or Path(os.environ.get("SHELL", "")).name
    if shell not in SCRIPTS:
        source = (
            nearest_name(name, SCRIPTS)
            if name
            else " from the variable SHELL; name it: likewise --install-completion bash"
        )
        raise LikewiseError(f"completion: the shell must be one of {', '.join(SCRIPTS)}, got '{shell}'{source}")
    return shell
