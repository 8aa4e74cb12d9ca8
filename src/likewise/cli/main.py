"""The command line: one command per stage, whose flags are the fields of its config. Help does not import torch."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from likewise.cli import commands
from likewise.cli.commands import COMMANDS, GROUPS, MAIN_COMMANDS, config_class
from likewise.core.errors import LikewiseError, is_out_of_memory, memory_sentence, nearest_name, printable

USAGE_TITLE = "likewise: visual-similarity learning that people can trust, even when the labels are wrong."
START = (
    ("likewise demo", "needs no data: 2 minutes on 2 cores"),
    ("likewise clean photos/", "find wrong labels, on a page; no training"),
    ("likewise train photos/ --robust", "an embedding, although labels are wrong"),
)
"""Calls of "Start here", and what they do."""

DATA_HELP = """DATA is a folder with one sub-folder per class, a .csv or .parquet table with
path,label, features in .npz with x,label, or a name such as glyphs or cub200.
`likewise COMMAND --help` explains a command; `likewise --install-completion`
installs completion in bash, zsh or fish."""


def usage(is_bold: bool = False) -> str:
    """Return the text of `likewise --help`: the first calls, and one line per command in groups.

    Args:
        is_bold: whether the headings and `MAIN_COMMANDS` are in bold, by codes that terminals understand.
    """

    def bold(text: str) -> str:
        return f"\033[1m{text}\033[0m" if is_bold else text

    lines = [USAGE_TITLE, "", bold("Start here"), *(f"  {call:<33}{what}" for call, what in START)]
    for title, names in GROUPS.items():
        lines += ["", bold(title)]
        for name in names:
            line = f"  {COMMANDS[name].call:<23}{COMMANDS[name].summary}"
            lines.append(bold(line) if name in MAIN_COMMANDS else line)
    most = ", ".join(MAIN_COMMANDS[:-1])
    return "\n".join([*lines, "", f"Most work needs seven: {most} and {MAIN_COMMANDS[-1]}.", DATA_HELP, ""])


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Ends with 0, 2 for a problem the user can act on, 130 after Ctrl-C."""
    if arguments is None:
        arguments = sys.argv[1:]
        os.environ.setdefault("PYTHONSAFEPATH", "1")  # processes that libraries start import nothing from this folder
    open_streams()
    pressed = threading.Event()
    try:
        with noting_ctrl_c(pressed):
            start(list(arguments))
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        end_stopped(str(stop))
    except BrokenPipeError:  # the program that reads the output ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except LikewiseError as error:
        fail(str(error))
    except OSError as error:  # a folder without write permission, a disk that was removed
        fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except Exception as error:
        if pressed.is_set():  # a library that was being imported replaced the KeyboardInterrupt by another error
            end_stopped()
        if is_out_of_memory(error):
            fail(memory_sentence(error, "use smaller batches, images (--size) or embeddings (--dim), or less --memory"))
        raise


def open_streams() -> None:
    """Open closed standard streams on the null device, and write `?` for characters that a stream cannot encode."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:  # otherwise the next opened file would get this number and all printed text
                os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def noting_ctrl_c(pressed: threading.Event) -> Iterator[None]:
    """Set the event at Ctrl-C, then raise KeyboardInterrupt as usual. A handler that the caller installed is not replaced."""
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def note(number, frame) -> None:
        pressed.set()
        usual(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def end_stopped(text: str = "") -> NoReturn:
    print(f"\n{text or 'stopped'}", file=sys.stderr)
    sys.exit(130)


def start(words: list[str]) -> None:
    """Find the command, and run it or print its help."""
    if not words or words[0] in ("-h", "--help", "--help-all", "help"):
        print(usage(is_bold=os.name == "posix" and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"), end="")
        return
    if words[0] in ("-V", "--version"):
        print(versions())
        return
    name, rest = words[0], words[1:]
    if name in ("--complete", "--install-completion", "--print-completion"):
        from likewise.cli import completion

        if name == "--complete":
            print("\n".join(completion.offered_words(rest)))
        else:
            print(completion.install(*rest[:1]) if name == "--install-completion" else completion.script(*rest[:1]))
        return
    if name not in COMMANDS:
        fail(f"there is no command '{name}'{nearest_name(name, COMMANDS)} See `likewise --help`")
    if {"-h", "--help", "--help-all"} & set(rest):
        from likewise.cli.flags import help_text

        print(help_text(name, config_class(name), everything="--help-all" in rest), end="")
        return
    check_current_folder()
    config = parse(name, rest)
    from likewise.cli.early import check_early  # not for help, which must be quick

    check_early(name, config)
    commands.run(name, config, rest)


def versions() -> str:
    """Return the versions of likewise and torch, without importing torch."""
    from importlib.metadata import PackageNotFoundError, version

    from likewise._version import __version__

    try:
        return f"likewise {__version__} (torch {version('torch')})"
    except PackageNotFoundError:
        return f"likewise {__version__} (torch is not installed)"


def check_current_folder() -> None:
    """Fail if the current folder does not exist: numerical libraries would end the process without a message."""
    try:
        os.getcwd()
    except OSError:
        fail("the current folder was deleted; change into an existing folder")


def fail(text: str) -> NoReturn:
    print(printable(f"likewise: {text}", keep="\n"), file=sys.stderr)
    sys.exit(2)


def parse(name: str, words: list[str]):
    """Return the config of a command from the words after its name.

    The values of a recipe replace the defaults; `--robust` is one more recipe. With a recipe the words are parsed twice: the
    first time for the recipe and the data, which decide the defaults.
    """
    import tyro

    from likewise.cli.flags import check_words, documented, settings_by_flag, with_switch_values
    from likewise.core.settings import merged_settings

    kind = config_class(name)
    check_words(name, kind, words)
    words, form = with_switch_values(kind, words), documented(kind)
    settings = vars(tyro.cli(form, args=words, prog=f"likewise {name}"))
    recipe = "+".join(filter(None, [settings.get("recipe"), settings.pop("robust", False) and "robust"]))
    if not recipe:
        return kind(**settings)
    from likewise.learn.recipes import read

    flags, data = settings_by_flag(kind), settings["data"]
    has_epochs = any(flags.get(word.split("=")[0].replace("_", "-")) == "epochs" for word in words)
    given = {"epochs": settings["epochs"]} if has_epochs else {}
    default = form(**{"data": data, **merged_settings(read(recipe, data).values, given)})
    settings = vars(tyro.cli(form, args=words, prog=f"likewise {name}", default=default))
    del settings["robust"]
    return kind(**settings | {"recipe": recipe})
