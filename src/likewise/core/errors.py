"""Errors for users: LikewiseError and its subclasses, and suggestions for misspelt names. Does not import torch."""

import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import TextIOBase
from typing import IO

CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, break lines or change the direction of text, and undecodable bytes."""


MAX_SHOWN_NAMES = 5
"""Number of names that a message shows."""

MIN_SIMILARITY = 0.75
"""Smallest `difflib` ratio at which a name is suggested: one wrong letter of four. "photos" and "shots" have 0.73."""

MIN_INITIAL_SIMILARITY = 0.66
"""The same for names with the same first letter, which few typing errors change: "roh" and "rho" have 0.67."""

MIN_PREFIX = 3
"""Number of characters from which the start of a name is enough to suggest it."""


class LikewiseError(ValueError):
    """A problem that the user can solve. The message has who raises it, what must hold, what was given, and what to do."""


class RunBusy(LikewiseError):
    """Another process trains in the folder of the run."""


class DiskFull(LikewiseError):
    """A file could not be written because the disk, or the user's share of it, is full."""


class OutOfMemory(LikewiseError):
    """The memory of the host or of a GPU is exhausted."""


MEMORY_WORDS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "alloc_failed",
    "size calculation overflowed",
)
"""Messages of torch when an allocation fails, in lower case: torch has no exception class for host memory."""


def nearest_name(name: str, names: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: "; did you mean 'x'?", or "." if no known name is similar."""
    near = similar_name(name, names)
    return "." if near is None else f"; did you mean '{near}'?"


def similar_name(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that starts with the given one or, if there is none, differs from it in few letters."""
    known, start = {n.casefold(): n for n in names}, name.casefold()
    longer = [n for n in known if n.startswith(start)] if len(start) >= MIN_PREFIX else []
    close = get_close_matches(start, longer, 1, 0) or get_close_matches(start, known, 1, MIN_SIMILARITY)
    close = close or get_close_matches(start, [n for n in known if n[:1] == start[:1]], 1, MIN_INITIAL_SIMILARITY)
    return known[close[0]] if close else None


def shown_names(names: Sequence[str]) -> str:
    """Return the first `MAX_SHOWN_NAMES` names in quotes, for a message; "..." at the end stands for the others."""
    shown = ", ".join(f"'{printable(name)}'" for name in names[:MAX_SHOWN_NAMES])
    return f"{shown}{', ...' * (len(names) > MAX_SHOWN_NAMES)}"


def printable(text: str, keep: str = "") -> str:
    """Return the text with control characters escaped, such as `\\x1b`: names in data may contain terminal commands.

    Args:
        keep: control characters that are not escaped, such as line breaks.
    """
    return CONTROL_CHARACTERS.sub(lambda match: match[0] if match[0] in keep else repr(match[0])[1:-1], text)


def print_text(text: object = "", file: IO[str] | TextIOBase | None = None) -> None:
    """Print a text at once. Control characters except line breaks are escaped: names in data may contain terminal commands."""
    print(printable(str(text), keep="\n"), file=file, flush=True)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the chain of errors that caused it, newest first."""
    visited: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in visited:
        yield current
        visited.append(current)
        current = current.__cause__ or current.__context__


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports exhausted memory: in Python, in torch on the host, or on a GPU."""
    named = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    words = str(error).lower() if isinstance(error, RuntimeError) else ""
    return isinstance(error, MemoryError) or named or any(w in words for w in MEMORY_WORDS)


def memory_sentence(error: BaseException, advice: str) -> str:
    """Return a sentence about exhausted memory, with the size of the failed allocation if the error has it."""
    size = re.search(r"ried to allocate ([\d.]+ \w+)", str(error)) or re.search(
        r"allocate ([\d.]+ [KMGTPE]iB)", str(error)
    )
    return f"memory is exhausted{f' (an allocation of {size[1]} failed)' if size else ''}; {advice}"


@contextmanager
def memory_errors(owner: str, advice: str) -> Iterator[None]:
    """Convert errors for which `is_out_of_memory` holds to `OutOfMemory`.

    Args:
        owner: command or component that runs, for the message.
        advice: what the user can do, for the message.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"{owner}: {memory_sentence(error, advice)}") from None


def require_package(package: str, owner: str) -> None:
    """Raise if a package is not installed; the extra of likewise that installs it has the same name. Imports nothing."""
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        raise LikewiseError(
            f"{owner}: it needs the package {package}, which is not installed; run {pip_install(f'likewise[{package}]')}"
        )


def pip_install(*words: str) -> str:
    """Return the command that installs packages for this Python: `pip install ...`, if the pip on the PATH belongs to it."""
    found, own = shutil.which("pip"), os.path.dirname(sys.executable)
    if found is not None and os.path.dirname(found) == own:
        start = "pip install"
    elif (
        importlib.machinery.PathFinder.find_spec("pip") is None
    ):  # util.find_spec would switch off setuptools' distutils
        start = f"uv pip install --python {shlex.quote(sys.executable)}"
    else:
        start = f"{shlex.quote(sys.executable)} -m pip install"
    return f"{start} {shlex.join(words)}"
