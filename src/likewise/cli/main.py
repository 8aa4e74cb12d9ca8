"""The command line: one command a stage, its flags the fields of that stage's config. Torch is loaded only to work."""

from __future__ import annotations

import dataclasses
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pkgutil import iter_modules
from typing import NoReturn

from likewise.cli import commands
from likewise.cli.commands import COMMANDS
from likewise.errors import LikewiseError, is_out_of_memory, memory_sentence, nearest_name, printable

TITLE = "likewise: visual-similarity learning that people can trust, even when the labels are wrong."
DATA = """DATA is a folder with one sub-folder per class, a .csv or .parquet table with path,label, features in .npz with x,label,
or a name such as glyphs, cub200 or hf:food101. `likewise COMMAND --help` explains every flag with its default."""


def usage() -> str:
    """Return what `likewise --help` prints: one line per command, from their registry."""
    lines = (f"  {f'likewise {call}':<36}  {summary}\n" for call, summary in commands.USAGE.values())
    return f"{TITLE}\n\n{''.join(lines)}\n{DATA}\n"


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
    except BrokenPipeError:  # the reader of our output went away, which is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except LikewiseError as error:
        fail(str(error))
    except OSError as error:  # a folder that may not be written, a disk that went away
        fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except Exception as error:
        if pressed.is_set():  # a library that was being loaded made another error of it
            end_stopped()
        if is_out_of_memory(error):
            fail(
                memory_sentence(error, "use smaller batches, pictures (--size) or embeddings (--dim), or less --memory")
            )
        raise


def open_streams() -> None:
    """Open closed standard streams to nothing, and let streams write `?` for letters that they lack."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:  # else the next file that is opened would get its number, and what is printed
                os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def noting_ctrl_c(pressed: threading.Event) -> Iterator[None]:
    """Set the event at Ctrl-C, then raise KeyboardInterrupt as usual. A handler that the caller installed stays."""
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
    """Find the command and run it."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return
    if words[0] == "--version":
        from likewise._version import __version__

        print(__version__)
        return
    name, rest = words[0], words[1:]
    if name == "recipe":
        if rest[:1] not in (["show"], ["diff"]):
            fail("likewise recipe show NAME, or recipe diff A [B], [--data DATA]; `likewise list recipes` names them")
        name, rest = f"recipe {rest[0]}", rest[1:]
    if name not in COMMANDS:
        fail(f"there is no command '{name}'{nearest_name(name, [*COMMANDS, 'recipe'])} See `likewise --help`")
    must_be_somewhere()
    COMMANDS[name](parse(name, rest))


def must_be_somewhere() -> None:
    """The current folder exists: numerical libraries end the process without a word where it does not."""
    try:
        os.getcwd()
    except OSError:
        fail("the current folder does not exist any more; change into another one")


def fail(text: str) -> NoReturn:
    print(printable(f"likewise: {text}", keep="\n"), file=sys.stderr)
    sys.exit(2)


def config_class(name: str) -> type:
    """Return the config of a command: the class of its name in a module of `likewise.config`, RecipeShow for `recipe show`."""
    from likewise import config as configs

    title = "".join(word.title() for word in name.split())
    modules = (importlib.import_module(f"likewise.config.{found.name}") for found in iter_modules(configs.__path__))
    found = ((vars(module).get(title), module.__name__) for module in modules)
    return next(kind for kind, home in found if kind is not None and kind.__module__ == home)


def parse(name: str, words: list[str]):
    """Words -> the command's config. A recipe's values stand in for the defaults; `--robust` is one more recipe.

    With a recipe the words are parsed twice: the first time for the recipe and the data, which decide the defaults.
    """
    import tyro

    from likewise import config as configs

    kind = config_class(name)
    robust = ["robust"] if kind is configs.Train and "--robust" in words else []
    words = [word for word in words if not (robust and word == "--robust")]
    words = spelled(kind, words)
    helps = {"-h", "--help"} & set(words)
    first = tyro.cli(
        readable(kind) if helps else kind,
        args=words,
        prog=f"likewise {name}",
        description=description(kind) if helps else None,
    )
    recipe = "+".join([first.recipe, *robust] if kind is configs.Train and first.recipe else robust)
    if not recipe:
        return first
    from likewise.recipes import read

    given = {"epochs": first.epochs} if any(word.split("=")[0] == "--epochs" for word in words) else {}
    values = configs.merged_settings(read(recipe, first.data).values, given)
    default = configs.Train(**{"data": first.data, **values})
    return dataclasses.replace(tyro.cli(kind, args=words, prog=f"likewise {name}", default=default), recipe=recipe)


def spelled(kind: type, words: list[str]) -> list[str]:
    """The same words with `--flag` and `--no-flag` for `--flag True` and `--flag False`, where a flag may also be left to us."""
    flags = {f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(kind) if f.type == "bool | None"}
    spelled = []
    for word, following in zip_longest(words, words[1:]):
        if word in flags and following not in ("True", "False", "None"):
            spelled += [word, "True"]
        elif (plain := word.replace("--no-", "--", 1)) in flags and plain != word:
            spelled += [plain, "False"]
        else:
            spelled.append(word)
    return spelled


def readable(kind: type) -> type:
    """The same settings, for help: texts without the line breaks of their source, and no word of a default that is nothing."""
    import ast
    import inspect
    from copy import copy  # a field belongs to its class
    from itertools import pairwise
    from typing import Annotated, Any, get_origin, get_type_hints

    import tyro

    (source,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(source, ast.ClassDef)
    said = {
        ast.unparse(a.target): ast.literal_eval(b.value)
        for a, b in pairwise(source.body)
        if isinstance(a, ast.AnnAssign) and isinstance(b, ast.Expr)
    }
    hints, bare, fields = get_type_hints(kind, include_extras=True), get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        about: dict[str, Any] = {"help": " ".join(said[field.name].split())}
        if field.default is None and get_origin(hints[field.name]) is not Annotated:  # those have a name already
            about["metavar"] = placeholder(bare[field.name])
        if field.default is None or field.default == ():
            about["help_behavior_hint"] = ""
        fields.append((field.name, Annotated[hints[field.name], tyro.conf.arg(**about)], copy(field)))
    return dataclasses.make_dataclass(kind.__name__, fields)


def description(kind: type) -> str:
    """What a command does, in lines as long as the terminal is wide; tyro keeps line breaks before a space."""
    import shutil
    import textwrap

    return textwrap.fill(
        " ".join((kind.__doc__ or "").split()), shutil.get_terminal_size().columns, subsequent_indent=" "
    )


def placeholder(hint) -> str:
    """What may stand after a flag that may also be left out: STR, {a,b}, FLOAT FLOAT, STR ..."""
    from typing import Literal, get_args, get_origin

    (kind,) = (one for one in get_args(hint) if one is not type(None))
    if kind is bool or get_origin(kind) is Literal:
        return f"{{{','.join(map(str, get_args(kind) or (True, False)))}}}"
    return " ".join("..." if one is ... else one.__name__.upper() for one in get_args(kind) or (kind,))
